"""Source lines of a program's code, from DWARF's line table, and the functions inlined at an
address, from addr2line. The table is read here, since binutils prints it without columns, by which
a line's statements differ."""

import bisect
import os
import struct
import subprocess


def unsigned_leb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def signed_leb(data, at):
    begin = at
    value, at = unsigned_leb(data, at)
    bits = 7 * (at - begin)
    return (value - (1 << bits) if value >> (bits - 1) & 1 else value), at


class Program:
    """An ELF file of 64 bits, as g++ -g1 writes it."""

    def __init__(self, path):
        self.path = str(path)
        with open(path, "rb") as file:
            self.data = file.read()
        begin, = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, begin + i * size) for i in range(count)]
        self.sections = {}
        for name, _, _, address, offset, length, *_ in sections:
            at = sections[names][4] + name
            self.sections[self.data[at:self.data.index(0, at)].decode()] = (address, offset, length)

    def text(self, begin, end):
        address, offset, length = self.sections[".text"]
        return self.data[offset + max(begin - address, 0):offset + min(end - address, length)]

    def calls(self, place):
        """Return addresses of all calls of the function whose call returns to `place`."""
        address, _, length = self.sections[".text"]
        code = self.text(address, address + length)
        target = place + struct.unpack_from("<i", code, place - 4 - address)[0]
        found, at = [], code.find(b"\xe8")
        while 0 <= at <= len(code) - 5:
            after = address + at + 5
            if after + struct.unpack_from("<i", code, at + 1)[0] == target:
                found.append(after)
            at = code.find(b"\xe8", at + 1)
        return found

    def function_ends(self, places):
        """{place: the end of the function that holds it}."""
        _, offset, length = self.sections[".symtab"]
        functions = sorted((value, size) for _, info, _, _, value, size in
                           struct.iter_unpack("<IBBHQQ", self.data[offset:offset + length]) if info & 15 == 2 and size)
        begins = [value for value, _ in functions]
        return {place: sum(functions[bisect.bisect_right(begins, place) - 1]) for place in places}

    def rows(self, ranges):
        """[(address, line, column, whether a statement begins)] within ranges: sorted [(begin, end)]."""
        _, offset, length = self.sections[".debug_line"]
        data, at, rows = self.data[offset:offset + length], 0, []
        while at < len(data):
            unit, = struct.unpack_from("<I", data, at)
            if unit == 0xFFFFFFFF:
                raise ValueError("64-bit DWARF")
            end = at + 4 + unit
            self.unit(data, at + 4, end, rows)
            at = end
        lowest, highest = ranges[0][0], ranges[-1][1]
        rows = sorted(r for r in rows if lowest <= r[0] < highest)
        inside, i = [], 0
        for row in rows:
            while i < len(ranges) and ranges[i][1] <= row[0]:
                i += 1
            if i < len(ranges) and ranges[i][0] <= row[0]:
                inside.append(row)
        return inside

    @staticmethod
    def unit(data, at, end, rows):
        """One unit's program, DWARF 5 section 6.2."""
        version, = struct.unpack_from("<H", data, at)
        at += 2 + (2 if version >= 5 else 0)
        length, = struct.unpack_from("<I", data, at)
        begin = at + 4 + length
        at += 4
        smallest = data[at]
        at += 2 if version >= 4 else 1
        initially = data[at]
        line_base, line_range, first_special = struct.unpack_from("<bBB", data, at + 1)
        lengths = data[at + 4:at + 3 + first_special]
        at, address, line, column, begins = begin, 0, 1, 0, initially
        while at < end:
            code = data[at]
            at += 1
            if code >= first_special:
                code -= first_special
                address += code // line_range * smallest
                line += line_base + code % line_range
                rows.append((address, line, column, begins))
            elif code == 0:
                size, at = unsigned_leb(data, at)
                if data[at] == 1:  # end of a sequence
                    address, line, column, begins = 0, 1, 0, initially
                elif data[at] == 2:
                    address = int.from_bytes(data[at + 1:at + size], "little")
                at += size
            elif code == 1:
                rows.append((address, line, column, begins))
            elif code == 2:
                value, at = unsigned_leb(data, at)
                address += value * smallest
            elif code == 3:
                value, at = signed_leb(data, at)
                line += value
            elif code == 5:
                column, at = unsigned_leb(data, at)
            elif code == 6:
                begins = not begins
            elif code == 8:
                address += (255 - first_special) // line_range * smallest
            elif code == 9:
                address += struct.unpack_from("<H", data, at)[0]
                at += 2
            else:
                for _ in range(lengths[code - 1]):
                    _, at = unsigned_leb(data, at)

    def frames(self, addresses):
        """{address: [(function, path, line)], the innermost first}."""
        asked = sorted(set(addresses))
        if not asked:
            return {}
        done = subprocess.run(["addr2line", "-i", "-f", "-C", "-a", "-e", self.path],
                              input="\n".join(map(hex, asked)), capture_output=True, text=True, check=True)
        here, all_frames, current, lines = os.getcwd() + "/", {}, None, iter(done.stdout.splitlines())
        for line in lines:
            if line.startswith("0x"):
                current = all_frames.setdefault(int(line, 16), [])
                continue
            path, _, number = next(lines).split(" ")[0].rpartition(":")
            path = os.path.normpath(path).removeprefix(here) if path else path
            current.append((line, path, int(number) if number.isdigit() else 0))
        return all_frames
