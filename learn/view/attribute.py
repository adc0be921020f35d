"""From counts by instruction (simt/counters/lines_json.h) to counts by line of source."""

import bisect
import re

KINDS = ("load store atomic ldmatrix cp_async copy_commit copy_wait numbered_barrier "
         "barrier shuffle vote lanes_wait mma").split()


IS_LAUNCH = re.compile(r"_Function_handler|simt::Launcher|\blaunch<")


def plain_name(kernel):
    """ "bv::simt_gpu::rows<float, 8>" is rows."""
    return kernel.split("<")[0].split("(")[0].split("::")[-1].strip()


def is_stand_in(path):
    """A file of the tool, not of the kernel."""
    return not path or path.startswith(("simt/", "/usr/", "?", "kernels/cuda/launch.", "bench/")) or \
        re.fullmatch(r"learn/(exercises/)?\w+\.h", path)


def parameters(kernel, texts):
    """The names of the kernel's parameters, from its definition; [] if it isn't found."""
    for text in texts:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
        for found in re.finditer(rf"\b{re.escape(plain_name(kernel))}\s*\(", text):
            if "__global__" not in re.split(r"[;}]", text[:found.start()])[-1]:
                continue
            names, depth, begin = [], 0, found.end()
            for at in range(begin, len(text)):
                if depth == 0 and text[at] in ",)":
                    word = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", text[begin:at].split("=")[0])
                    names.append(word[1] if word else "")
                    begin = at + 1
                    if text[at] == ")":
                        return names
                depth += (text[at] in "(<[{") - (text[at] in ")>]}")
    return []


def name_by_parameters(samples, arguments, names):
    """Names a sample's memory by the parameter that points to it: out[32]."""
    if len(arguments) != len(names):
        return
    for sample in samples:
        address = sample[6][0]
        holding = [a for a in arguments if a[0] <= address < a[1]] if sample[4] < 0 else []
        if holding:
            begin, _, width = nearest = max(holding)
            words = " = ".join(name for name, a in zip(names, arguments) if a == nearest)
            sample[5] = f"{words}[{(address - begin) // width}]"


class Attribution:
    """The lines of one program's kernels."""

    def __init__(self, program, kernels, text):
        self.program, self.text = program, text  # text: a path's lines
        self.files, self.homes = [], {}  # homes: the kernels' source files, with counts
        pieces = sorted({p[0] for k in kernels for p in k["pieces"]})
        rows = self.rows_of(pieces) if pieces else {}
        addresses = {line[0] - 1 for k in kernels for line in k["lines"]}
        addresses |= {row[0] for found in rows.values() for row in found}
        self.frames = program.frames(addresses)
        self.rows = rows

    def rows_of(self, pieces):
        """{piece: its rows of the line table}: those up to the next piece, executed or not."""
        calls, ends = self.program.calls(pieces[0]), self.program.function_ends(pieces)
        ranges, begins = [], []
        for piece in pieces:
            i = bisect.bisect_right(calls, piece)
            end = calls[i] - 5 if i < len(calls) else ends[piece]
            ranges.append((piece - 5, min(end, ends[piece])))
            begins.append(piece - 5)
        found = {piece: [] for piece in pieces}
        for row in self.program.rows(ranges):
            found[pieces[bisect.bisect_right(begins, row[0]) - 1]].append(row)
        return found

    def file(self, path):
        if path not in self.files:
            self.files.append(path)
        return self.files.index(path)

    def chain(self, address, kernel):
        """(the frames in the kernel's own sources, innermost first; whether the innermost of all
        frames is among them)."""
        frames = self.frames.get(address, [])
        is_kernel = re.compile(rf"(^|[ :]){re.escape(plain_name(kernel))}[<(]")
        for i, (function, _, _) in enumerate(frames):
            if is_kernel.search(function):
                frames = frames[:i + 1]
                self.homes[frames[i][1]] = self.homes.get(frames[i][1], 0) + 1
                break
        else:
            if any(IS_LAUNCH.search(f) for f, _, _ in frames):
                frames = []  # the launch, not the kernel
        own = [f for f in frames if not is_stand_in(f[1]) and f[2]]
        return own, bool(own) and own[0] is frames[0]

    def places(self, address, kernel, site):
        """([[file, line] ...], the innermost line in each file; the frames)."""
        chain, _ = self.chain(address - 1, kernel)
        if site:
            path, _, line = site.rpartition(":")
            path = path.removeprefix("./")
            if not any(f[1] == path and f[2] == int(line) for f in chain) and not is_stand_in(path):
                chain = [("", path, int(line))] + chain
        places = {}
        for _, path, line in chain:
            places.setdefault(path, line)
        return [[self.file(path), line] for path, line in places.items()], chain

    def executions(self, kernel, lines):
        """{file: {line: [warps, lanes]}}. Copies of a statement, as in unrolled loops, are added up.
        Of several statements in a line, which differ in column, the one executed most often counts.
        g++ moves parts of a statement elsewhere, so its marked beginning counts, if it has one.
        If a line has accesses, only these count, since g++ moves other parts out of loops."""
        begins = sorted(p[0] for p in kernel["pieces"])
        with_access = {}
        for made in lines:
            piece = begins[max(bisect.bisect_right(begins, made["place"]) - 1, 0)] if begins else 0
            for file, line in made["at"]:
                with_access.setdefault((self.files[file], line), set()).add(piece)
        by_line = {}
        for place, warps, lanes in kernel["pieces"]:
            keys = set()
            for address, row_line, column, begins in self.rows.get(place, []):
                chain, is_direct = self.chain(address, kernel["name"])
                seen = set()
                for depth, (_, path, line) in enumerate(chain):
                    if path not in seen:
                        direct = is_direct and depth == 0
                        rank = 0 if direct and begins else 1 if direct else 2
                        keys.add((path, line, rank, (row_line, column) if direct else (*chain[0][1:], row_line, column)))
                    seen.add(path)
            for path, line, rank, key in keys:
                if place not in with_access.get((path, line), {place}):
                    continue
                sums = by_line.setdefault((path, line), ({}, {}, {}))[rank]
                warps_before, lanes_before = sums.get(key, (0, 0))
                sums[key] = (warps_before + warps, lanes_before + lanes)
        result = {}
        for (path, line), (begun, direct, called) in by_line.items():
            # A line with a call may have no code of its own: the callee's first line has the count.
            most = max((begun or direct).values()) if begun or direct else called[min(called, key=str)]
            result.setdefault(self.file(path), {})[line] = list(most)
        return result

    def kernel(self, k):
        lines = []
        for place, kind, width, site, *numbers, samples in k["lines"]:
            places, chain = self.places(place, k["name"], site)
            functions = self.frames.get(place - 1, [])
            lines.append({
                "place": place, "kind": KINDS[kind], "width": width, "at": places, "n": numbers,
                "transposed": any("trans" in f or "ldmatrix<true>" in f for f, _, _ in functions),
                "via": [f"{path}:{line}" for _, path, line in chain], "samples": samples})
        executions = self.executions(k, lines)
        names = parameters(k["name"], ["\n".join(self.text(path)) for path in self.files])
        for line in lines:
            name_by_parameters(line["samples"], k["arguments"], names)
        by_place = {line[0]: made["at"] for line, made in zip(k["lines"], lines)}
        timeline = {}
        for block, warp, place, kind, *numbers in k["timeline"]:
            at = by_place.get(place) or [[-1, 0]]
            timeline.setdefault(block, {}).setdefault(warp, []).append([KINDS[kind] if place else "end", at, *numbers])
        return {
            "name": k["name"], "grid": k["grid"], "block": k["block"], "shared": k["shared_bytes"],
            "counters": k["counters"], "kept": k["kept"], "names": k["names"], "lines": lines,
            "executions": executions, "timeline": timeline}
