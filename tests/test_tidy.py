"""The form of c/src: tiers, circles, lengths, headers, memory orders, switches; and make's names.

`python tests/test_tidy.py [c/src of another checkout]` prints the figures of the call graph: files
in circles, arrows back up.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from c_text import (
    NAME,
    File,
    Graph,
    arrows_up,
    calls,
    circles,
    enums,
    includes,
    operations,
    read,
    switches,
)

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "c" / "src"

# A file includes and calls its own tier and lower ones; "" is c/src itself. The one door upwards
# is a table of function pointers, struct lm_dialect (flow/dialect.h): flow/ and work/ call the
# dialects through it and name none of them.
TIERS = {
    "base": 0,
    "engine": 1,
    "wire": 2,
    "text": 3,
    "parts": 4,
    "tls": 5,
    "onnx": 6,
    "models": 7,
    "formats": 8,
    "image": 9,
    "ring": 10,
    "load": 11,
    "flow": 12,
    "work": 13,
    "dialects": 14,
    "": 15,
    "server": 16,
}
LOAD_USES = {"base", "parts", "ring", "tls", "load"}

FUNCTION_LINES_MAX = 60
SOURCE_LINES_MAX = 415  # a source should have 400
HEADER_LINES_MAX = 250

# Several sources behind one header.
HEADER_OF = {
    "base/abi.c": "lumen_load.h",
    "dialects/native_reply.c": "dialects/native.h",
    "engine/dense_avx2.c": "engine/dense_x86.h",
    "engine/dense_avx512.c": "engine/dense_x86.h",
    "engine/trees_head.c": "engine/trees.h",
    "formats/oip_parser.cc": "formats/oip_json.h",
    "formats/oip_values.cc": "formats/oip_json.h",
    "formats/rows_values.cc": "formats/rows_walk.h",
    "image/resample_avx2.c": "image/resample_x86.h",
    "image/resample_avx512.c": "image/resample_x86.h",
    "load/loadgen_http.c": "load/loadgen.h",
    "load/loadgen_native.c": "load/loadgen.h",
    "load/loadgen_setup.c": "load/loadgen.h",
    "load/loadgen_transport.c": "load/loadgen.h",
    "models/pictures.c": "models/load.h",
    "models/signature.c": "models/load.h",
    "models/text_open.c": "models/load.h",
    "models/trial.c": "models/load.h",
    "onnx/ort_session.c": "onnx/ort.h",
    "onnx/ort_strings.c": "onnx/ort.h",
    "parts/placement_text.c": "parts/placement.h",
    "ring/ring_base.c": "ring/ring_backend.h",
    "ring/ring_check.c": "ring/ring_backend.h",
    "ring/ring_epoll_try.c": "ring/ring_epoll.h",
    "ring/ring_open.c": "ring/ring_backend.h",
    "ring/ring_uring.c": "ring/ring_backend.h",
    "server/errands.c": "lumen.h",
    "server/idle.c": "server/state.h",
    "server/live.c": "server/state.h",
    "server/memory.c": "server/state.h",
    "server/models.c": "server/state.h",
    "server/names.c": "server/state.h",
    "server/node.c": "server/state.h",
    "server/process.c": "server/state.h",
    "server/report.c": "server/state.h",
    "server/reload.c": "server/state.h",
    "server/server.c": "server/state.h",
    "server/slots.c": "server/state.h",
    "server/threads.c": "server/state.h",
    "server/tls.c": "server/state.h",
    "server/budgets.c": "server/state.h",
    "server/traces.c": "server/state.h",
    "server/traffic.c": "server/state.h",
    "server/fallbacks.c": "server/state.h",
    "server/upstreams.c": "server/state.h",
    "server/width.c": "server/state.h",
    "server/workers.c": "server/state.h",
    "text/file_check.c": "text/file.h",
    "text/handle.c": "text/encode.h",
}

# Rooms (a header and its sources) in circles, by folder: a header that holds data which others
# embed, and whose sources use them. None in work/, server/ and dialects/; nowhere more than these.
IN_CIRCLES = {
    "engine": 4,
    "wire": 2,
    "onnx": 2,
    "models": 5,
    "formats": 15,
    "image": 3,
    "ring": 3,
    "flow": 9,
}

# Functions that no file of c/src calls.
FOR_TESTS = {
    "lm_rgb8_kernel_name",  # says in a failed test which kernel it was
    "lm_response_cache_is_valid",  # says whether it is whole
    "lm_histogram_floor",  # says to a benchmark where a bucket begins
}

# Targets that run the program of another target with other arguments.
SAME_PROGRAM = {"c100k": "c10k", "c1m": "c10k"}

LABEL = re.compile(r"\b([A-Z]\d+): ")
PARTNER = re.compile(r"\b([A-Z]\d+)\b|\bin (\w[\w/]*)\.\w+")
THREAD = re.compile(r"\b(threads?|workers?|compile time)\b", re.IGNORECASE)


# ---- tiers and circles ----


def climbing(files: dict[str, File], graph: Graph) -> list[tuple[str, str]]:
    """Arrows to a higher tier, and those between load/ and others that are not allowed."""
    found = []
    for at, targets in sorted(graph.items()):
        for to in sorted(targets):
            here, there = files[at].folder, files[to].folder
            stranger = here == "load" and there not in LOAD_USES
            if TIERS[there] > TIERS[here] or stranger or (there == "load" != here):
                found.append((at, to))
    return found


def test_tiers() -> None:
    files = read(SRC)
    assert {file.folder for file in files.values()} == set(TIERS)
    assert climbing(files, includes(files)) == []
    assert climbing(files, calls(files)) == []


def test_circles() -> None:
    files = read(SRC)
    assert circles(calls(files)) == []
    assert circles(includes(files)) == []


def rooms(files: dict[str, File]) -> Graph:
    """What the rooms include and call. A header that others take their data from, state.h, is a
    room of its own."""

    def room(path: str) -> str:
        header = HEADER_OF.get(path, "")
        is_shared = header not in files or header.endswith("state.h")
        return (path if is_shared else header).rpartition(".")[0]

    found: Graph = {room(path): set() for path in files}
    for graph in (calls(files), includes(files)):
        for at, targets in graph.items():
            found[room(at)] |= {room(to) for to in targets}
    return {at: targets - {at} for at, targets in found.items()}


def test_circles_of_rooms() -> None:
    inside = [room for group in circles(rooms(read(SRC))) for room in group]
    assert Counter(room.partition("/")[0] for room in inside) <= Counter(IN_CIRCLES)


def test_circles_are_found(tmp_path: Path) -> None:
    """Through an inline function, a table and a macro; not through a prototype or a comment."""
    sources = {
        "flow/a.h": "int lm_a(int);\nstatic inline int lm_twice(int x) {\n    return lm_b(x);\n}\n",
        "flow/b.c": "int lm_b(int x) {\n    return lm_hooks.run(x) + x;\n}\n",
        "flow/b.h": "/* calls lm_c(1) */\nint lm_b(int x);\n",
        "flow/c.c": "struct hooks lm_hooks = {.run = lm_twice};\nint lm_c(void) {\n    f();\n}\n",
        "base/d.c": "int lm_d(int x) {\n    return lm_c() + lm_b(x); /* up */\n}\n",
        "flow/e.c": "#define LM_E(x) lm_f(x)\nint lm_e(int x) {\n    return lm_d(x);\n}\n",
        "flow/f.c": "int lm_f(int x) {\n    return lm_e(x);\n}\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    files = read(tmp_path)
    graph = calls(files)
    assert graph["flow/a.h"] == {"flow/b.c"}
    assert graph["flow/b.h"] == set()
    assert graph["flow/c.c"] == {"flow/a.h"}
    assert circles(graph) == [["flow/e.c", "flow/f.c"]]
    assert len(arrows_up(graph)) == 1
    assert climbing(files, graph) == [("base/d.c", "flow/b.c"), ("base/d.c", "flow/c.c")]


# ---- files and functions ----


def test_lengths() -> None:
    files = read(SRC)
    functions = [(file.path, f) for file in files.values() for f in file.functions]
    assert len(functions) > 900
    assert [(at, f.name, f.lines) for at, f in functions if f.lines > FUNCTION_LINES_MAX] == []
    lines = {file.path: file.text.count("\n") for file in files.values() if not file.is_header}
    assert {path: count for path, count in lines.items() if count > SOURCE_LINES_MAX} == {}
    lines = {file.path: file.text.count("\n") for file in files.values() if file.is_header}
    assert {path: count for path, count in lines.items() if count > HEADER_LINES_MAX} == {}


def test_headers() -> None:
    """Each source has a header; each file first says what it is, a header also on which thread."""
    files = read(SRC)
    sources = [file for file in files.values() if not file.is_header]
    assert {s.path for s in sources if f"{s.stem}.h" not in files} == set(HEADER_OF)
    for source, header in HEADER_OF.items():
        assert header in files[source].includes, source
    for path, file in files.items():
        assert file.opening.startswith(f"/* {Path(path).name}: "), path
    headers = [file for file in files.values() if file.is_header]
    assert [h.path for h in headers if not THREAD.search(h.opening)] == []


def test_no_dead_functions() -> None:
    """A public function has a caller in another file; or one in its own file and a C test.

    An inline function of a header has a caller in its header or in another file.
    """
    files = read(SRC)
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "c").glob("*.[ch]"))
    tested = set(NAME.findall(tests))
    used = Counter(name for file in files.values() for name in file.uses)
    dead = set()
    for file in files.values():
        for function in file.functions:
            name = function.name
            inline = function.is_static and file.is_header
            if (function.is_static and not inline) or not re.fullmatch(r"lm_\w+", name):
                continue
            elsewhere = used[name] - (name in file.uses)
            here = len(re.findall(rf"\b{name}\b", file.code)) > 1 and (inline or name in tested)
            if not elsewhere and not here:
                dead.add(name)
    assert dead == FOR_TESTS
    assert tested >= FOR_TESTS


# ---- memory orders ----


def partners(words: str, here: str) -> set[tuple[str, str]]:
    """Labels and files of "pairs with A1 and A2 in x/y.c and A3"; those of `here` stand last."""
    found: set[tuple[str, str]] = set()
    waiting: list[str] = []
    for label, file in PARTNER.findall(re.split(r";|\. ", words.partition("pairs with ")[2])[0]):
        if label:
            waiting.append(label)
        else:
            found.update((file, one) for one in waiting)
            waiting = []
    return found | {(here, one) for one in waiting}


def unexplained(file: File) -> list[str]:
    """Operations without a label, or relaxed ones without a word why."""
    problems = []
    for operation in operations(file):
        problem = ""
        if operation.order == "relaxed":
            # Statistics guard nothing, and each word has one writer (parts/stats.h).
            is_counter = re.search(r"\b(stats|counters)->|_count_relaxed_", operation.statement)
            if not is_counter and "relaxed" not in operation.why:
                problem = "no word why"
        elif operation.order == "seq_cst":
            if "seq_cst" not in file.opening:
                problem = "no word why at the top of the file"
        elif not LABEL.search(operation.why) and not re.search(r"\bas [A-Z]\d", operation.why):
            problem = "no label, and no 'as' that of another"
        if problem:
            problems.append(f"{file.path}:{operation.line}: {operation.order}: {problem}")
    return problems


def unpaired(files: list[File], said: dict[tuple[str, str], set[tuple[str, str]]]) -> list[str]:
    """Labels that name no partner, or one that does not name them back."""
    problems = []
    for file in files:
        for line, _, words in file.comments:
            for label in LABEL.findall(words)[:1]:
                others = partners(words, file.stem)
                if not others:
                    problems.append(f"{file.path}:{line}: {label} names no partner")
                said.setdefault((file.stem, label), set()).update(others)
    for key, named in said.items():
        for other in named:
            if key not in said.get(other, set()):
                problems.append(f"{key} pairs with {other}, which does not pair with it")
    return problems


def test_memory_orders() -> None:
    """Each operation that orders memory has a label, and a partner that names it."""
    files = [file for file in read(SRC).values() if file.path != "base/atomics.h"]
    assert [problem for file in files for problem in unexplained(file)] == []
    # The statistics file is read by another process.
    reader = (ROOT / "lumen_uring" / "ring" / "stats.py").read_text()
    outside = {}
    for label in ("M2", "M5"):
        named = partners(reader.partition(f"# {label}: ")[2].partition("\n")[0], "")
        mine = {(file.removeprefix("c/src/"), one) for file, one in named}
        outside["lumen_uring/ring/stats", label] = mine
    assert unpaired(files, outside) == []
    orders = Counter(operation.order for file in files for operation in operations(file))
    assert orders["acquire"] > 10
    assert orders["relaxed"] > 50


def test_memory_orders_are_found() -> None:
    text = """int lm_a(void) {
    /* A1: acquire; pairs with A2 and B1 in x/other.c and A3 */
    lm_load_acquire_u32(&a);
    lm_store_release_u32(&a, 1); /* no label */
    lm_load_relaxed_u32(&a);
    lm_store_relaxed_u64(&stats->worker.a, 1);
    /* relaxed, both: why */
    uint64_t long_name =
        lm_load_relaxed_u32(&a);
    lm_load_relaxed_u32(&b); /* A3: pairs with A1 */
}
"""
    file = File("x/y.c", text)
    assert unexplained(file) == [
        "x/y.c:4: release: no label, and no 'as' that of another",
        "x/y.c:5: relaxed: no word why",
    ]
    assert unpaired([file], {}) == [
        f"('x/y', 'A1') pairs with {other}, which does not pair with it"
        for other in partners("pairs with A2 and B1 in x/other.c", "x/y")
    ]


def test_atomics_have_one_door() -> None:
    bare = re.compile(r"__atomic_|__sync_|\batomic_\w+\(|\b_Atomic\b|memory_order|stdatomic")
    found = {path for path, file in read(SRC).items() if bare.search(file.text)}
    assert found == {"base/atomics.h"}


# ---- switches ----


def test_switches() -> None:
    """One over values of ours names each and has no `default`: a new value is a warning."""
    files = read(SRC)
    public = read(ROOT / "c" / "include").values()
    families = [family for file in [*public, *files.values()] for family in enums(file)]
    problems, seen = [], 0
    for file in files.values():
        for line, body, cases in switches(file):
            family = next((f for f in families if f & cases), None)
            if family is None:
                continue
            seen += 1
            if re.search(r"\bdefault:", body):
                problems.append(f"{file.path}:{line}: default")
            if family - cases:
                problems.append(f"{file.path}:{line}: without {sorted(family - cases)}")
    assert problems == []
    assert seen >= 10


# ---- make ----


def test_targets() -> None:
    """A target that runs one program of bench/ or tools/ has that program's name."""
    text = (ROOT / "Makefile").read_text()
    program = re.compile(r"\$\(BENCH\)(?:\.\w+)*\.(\w+)|(?:python|\$\(PYTHON\)) tools/(\w+)\.py")
    seen = {}
    for target, recipe in re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", text, re.MULTILINE):
        programs = {(a or b).replace("_", "-") for a, b in program.findall(recipe)}
        if len(programs) == 1:
            seen[target] = programs.pop()
    assert len(seen) > 15
    assert {t: p for t, p in seen.items() if t != p} == SAME_PROGRAM


# ---- the figures ----


def main(source: Path) -> None:
    files = read(source)
    graph = calls(files)
    found = circles(graph)
    inside = [
        arrow
        for group in found
        for arrow in arrows_up({at: graph[at] & set(group) for at in group})
    ]
    up = climbing(files, graph)
    print(f"{len(files)} files, {sum(map(len, graph.values()))} arrows between them")
    print(f"{sum(map(len, found))} files in {len(found)} circles of calls")
    for group in found:
        print(f"  {len(group)}: {' '.join(group)}")
    print(f"{len(inside)} arrows back up inside the circles, at most")
    print(f"{len(up)} arrows to a higher tier")
    for at, to in up:
        print(f"  {at} -> {to}")
    print(f"{len(circles(includes(files)))} circles of #include")
    print(
        f"{len(rooms(files))} rooms, circles of {[len(group) for group in circles(rooms(files))]}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else SRC)
