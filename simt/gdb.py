"""The threads of a CUDA block on the stand-in, for gdb: gdb -x simt/gdb.py --args PROGRAM

  info cuda kernels      the kernel that runs, its grid, the block and the thread
  info cuda threads      the line that each thread of the block is at
  cuda lanes EXPRESSION  its value in each lane of the thread's warp
  cuda thread 5          switches to another thread of the block, also (5,0,0); `cuda thread` alone
                         prints the current one. Commands that resume the program switch back first.
  cuda block             prints the current block. The others run before it and after it.

The names are those of cuda-gdb. A thread is a fiber (device/fiber.h). A waiting fiber has saved its
registers on its stack; switching to it loads them into gdb until gdb switches back.
"""

import re

import gdb

SWITCHED = 24 + 128  # bytes that switch_stacks has pushed onto a waiting fiber's stack
RESUMING = "continue step next stepi nexti finish until advance jump call run signal detach kill"


class Block:
    """The block that the current host thread runs."""

    def __init__(self):
        try:
            pointer = gdb.parse_and_eval("'simt::Block::current_'")
        except gdb.error as e:
            raise gdb.GdbError(f"cuda: is this a running program on the stand-in? ({e})") from None
        if not pointer:
            raise gdb.GdbError("cuda: no kernel runs here")
        self.value = pointer.dereference()
        self.shape = [int(self.value["shape_"][c]) for c in "xyz"]
        self.begin = self.value["threads_"]["_M_impl"]["_M_start"]
        self.running = int(self.value["running_"]["id"])

    def count(self):
        x, y, z = self.shape
        return x * y * z

    def thread(self, number):
        return (self.begin + number).dereference()

    def index(self, number):
        x, y, _ = self.shape
        return number % x, number // x % y, number // (x * y)

    def number(self, words):
        numbers = [int(word) for word in re.findall(r"\d+", words)]
        numbers += [0] * (3 - len(numbers))
        if len(numbers) != 3 or any(n >= size for n, size in zip(numbers, self.shape)):
            raise gdb.GdbError(f"cuda: no thread {words.strip()} in a block of {triple(self.shape)}")
        return numbers[0] + self.shape[0] * (numbers[1] + self.shape[1] * numbers[2])

    def state(self, number):
        """None if gdb can switch to the thread, otherwise why not."""
        thread = self.thread(number)
        if number == self.running:
            return None
        if thread["returned"]:
            return "returned"
        return None if thread["fiber"]["top"] else "not begun"


def triple(numbers):
    return "({},{},{})".format(*numbers)


def place(frame):
    where = frame.find_sal()
    return f"{where.symtab.filename.split('/')[-1]}:{where.line}" if where.symtab else "?"


def is_of_the_stand_in(frame):
    where = frame.find_sal()
    return not where.symtab or re.search(r"simt/(device|host|include|try\.)|/usr/", where.symtab.filename)


def select_level(level):
    frame = gdb.newest_frame()
    for _ in range(level):
        frame = frame.older()
    frame.select()


def select_kernel(function=None):
    """Selects the thread's frame in the function of this name, else its innermost one outside the
    stand-in."""
    outside = frame = gdb.newest_frame()
    while frame and is_of_the_stand_in(frame):
        frame = frame.older()
    outside = inner = frame or outside
    while function and inner and inner.name() != function:
        inner = inner.older()
    (inner or outside).select()


class Look:
    """Switches gdb to another thread's registers, and back."""

    def __init__(self):
        self.saved = None
        self.at = None

    def to(self, block, number):
        state = block.state(number)
        if state:
            raise gdb.GdbError(f"cuda: thread {triple(block.index(number))} has {state}")
        if number == (block.running if self.at is None else self.at):
            return
        if not self.saved:
            level = gdb.selected_frame().level()
            gdb.newest_frame().select()
            self.saved = level, {r: int(gdb.parse_and_eval(f"(long)${r}")) for r in ("rip", "rsp", "rbp", "rbx")}
        if number == block.running:
            self.back()
            return
        top = int(block.thread(number)["fiber"]["top"])
        rip, rbx, rbp = (int(gdb.parse_and_eval(f"((long*){top})[{i}]")) for i in range(3))
        self.put({"rip": rip, "rsp": top + SWITCHED, "rbp": rbp, "rbx": rbx}, block.index(number))
        self.at = number

    def back(self):
        if not self.saved:
            return
        (level, registers), self.saved, self.at = self.saved, None, None
        block = Block()
        self.put(registers, block.index(block.running))
        select_level(level)

    def put(self, registers, index):
        for c, value in zip("xyz", index):
            gdb.execute(f"set variable simt_cuda::threadIdx.{c} = {value}")
        for name, value in registers.items():
            gdb.newest_frame().select()
            gdb.execute(f"set variable ${name} = {value}")
        gdb.newest_frame().select()


look = Look()


def ranges(numbers):
    """The end of "thread": "s 0-3, 5", or " 5" for a single number."""
    runs = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ("s " if len(numbers) > 1 else " ") + ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def by_place(block, threads, see):
    """{place: [numbers of the threads there]}; calls see(number) in each that gdb can switch to."""
    home = block.running if look.at is None else look.at
    frame = gdb.selected_frame()
    level, function = frame.level(), frame.name()
    places = {}
    try:
        for number in threads:
            state = block.state(number)
            if not state:
                look.to(block, number)
                if number == home:
                    select_level(level)
                else:
                    select_kernel(function)
                state = "at " + place(gdb.selected_frame()) + ("" if number == block.running else ", waits")
                see(number)
            places.setdefault(state, []).append(number)
    finally:
        look.to(block, home)
        select_level(level)
    return places


class Cuda(gdb.Command):
    """Looks at the threads of the CUDA block that runs: cuda lanes EXPRESSION, cuda thread 5."""

    def __init__(self):
        super().__init__("cuda", gdb.COMMAND_DATA, prefix=True)


class Lanes(gdb.Command):
    """cuda lanes EXPRESSION: its value in each lane of the thread's warp."""

    def __init__(self):
        super().__init__("cuda lanes", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, words, _):
        if not words:
            raise gdb.GdbError("cuda lanes needs an expression: cuda lanes EXPRESSION")
        block = Block()
        first = (block.running if look.at is None else look.at) // 32 * 32
        values = {}

        def see(number):
            try:
                values[number - first] = str(gdb.parse_and_eval(words))
            except gdb.error:
                values[number - first] = "?"

        places = by_place(block, range(first, min(first + 32, block.count())), see)
        if "?" in values.values():
            try:
                gdb.parse_and_eval(words)
            except gdb.error as e:
                raise gdb.GdbError(f"cuda: {e}") from None
        width = max((len(v) for v in values.values()), default=1)
        if width > 16:  # structures
            for lane, value in values.items():
                print(f"{lane:2}  {value}")
        for row in range(0, 32, 8) if width <= 16 else ():
            print(f"{row:2}-{row + 7:<2}  " + " ".join(values.get(lane, "-").rjust(width) for lane in range(row, row + 8)))
        for where, numbers in places.items():
            print(f"lane{ranges([n - first for n in numbers])} {where}")


class SelectThread(gdb.Command):
    """cuda thread 5, or (5,0,0): looks at another thread of the block."""

    def __init__(self):
        super().__init__("cuda thread", gdb.COMMAND_DATA)

    def invoke(self, words, _):
        block = Block()
        if words:
            look.to(block, block.number(words))
            select_kernel()
        number = block.running if look.at is None else look.at
        waits = "" if number == block.running else ", waits"
        print(f"thread {triple(block.index(number))} at {place(gdb.selected_frame())}{waits}")


class SelectBlock(gdb.Command):
    """cuda block: which block this is. The others run before it and after it."""

    def __init__(self):
        super().__init__("cuda block", gdb.COMMAND_DATA)

    def invoke(self, words, _):
        index = triple(int(Block().value["index_"][c]) for c in "xyz")
        if words and f"({words.strip('() ')})" not in (index, index.replace(",0,0)", ")")):
            raise gdb.GdbError(f"cuda: block {index} runs alone; to stop in another: break LINE if blockIdx.x == 1")
        print(f"block {index}")


class InfoCuda(gdb.Command):
    """Kernels and threads that run on the stand-in for CUDA: info cuda kernels, info cuda
    threads."""

    def __init__(self):
        super().__init__("info cuda", gdb.COMMAND_STATUS, prefix=True)


class InfoKernels(gdb.Command):
    """The kernel that runs, its grid, the block and the thread."""

    def __init__(self):
        super().__init__("info cuda kernels", gdb.COMMAND_STATUS)

    def invoke(self, _, __):
        block = Block()
        launch = block.value["launch_"].dereference()
        name = launch["name"]["_M_dataplus"]["_M_p"].string()
        grid, index = ([int(v[c]) for c in "xyz"] for v in (launch["grid"], block.value["index_"]))
        thread = block.index(block.running if look.at is None else look.at)
        print(f"{name}: grid {triple(grid)} of blocks {triple(block.shape)}; block {triple(index)}, thread {triple(thread)}")


class InfoThreads(gdb.Command):
    """The line at which each thread of the block stands."""

    def __init__(self):
        super().__init__("info cuda threads", gdb.COMMAND_STATUS)

    def invoke(self, _, __):
        block = Block()
        for where, numbers in by_place(block, range(block.count()), lambda number: None).items():
            print(f"thread{ranges(numbers)} {where}")


for command in (Cuda, Lanes, SelectThread, SelectBlock, InfoCuda, InfoKernels, InfoThreads):
    command()
for name in RESUMING.split():
    gdb.execute(f"define hook-{name}\npython look.back()\nend", to_string=True)
gdb.execute("set environment SIMT_CORES 1")  # one block after another
gdb.execute("set print thread-events off")
