"""Finding, loading and refusing the C library; its mirrors against the header itself."""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from lumen_uring.errors import EngineError, LibraryError
from lumen_uring.ring import (
    config_struct,
    functions,
    library,
    onnxruntime_path,
    stats_structs,
    structs,
)
from lumen_uring.settings import keys as setting_keys
from lumen_uring.settings import schema as settings
from lumen_uring.settings import types as setting_types

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "c" / "include"
HEADERS = (
    "lumen_config.h",
    "lumen_model_config.h",
    "lumen_stats.h",
    "lumen.h",
    "lumen_upstreams.h",
    "lumen_budgets.h",
    "lumen_traces.h",
    "lumen_report.h",
    "lumen_traffic.h",
    "lumen_load.h",
)
HEADERS_TEXT = "".join((INCLUDE / name).read_text() for name in HEADERS)
INCLUDES = "".join(f'#include "{name}"\n' for name in HEADERS)
# They fill a buffer of the caller's.
BUFFERS = ("lumen_describe", "lumen_plan", "lumen_news", "lumen_longest_idle")


def compile_c(directory: Path, source: str, *options: str) -> Path:
    code, result = directory / "t.c", directory / "t.out"
    code.write_text(source)
    subprocess.run(["gcc", "-I", str(INCLUDE), *options, "-o", str(result), str(code)], check=True)
    return result


@functools.cache
def header_structs() -> dict[str, str]:
    """Each struct's name and the text of its fields, as the preprocessor gives them."""
    done = subprocess.run(
        ["gcc", "-I", str(INCLUDE), "-E", "-P", "-"],
        input=INCLUDES,
        capture_output=True,
        check=True,
        text=True,
    )
    return dict(re.findall(r"typedef struct (\w+) \{(.*?)\}", done.stdout, re.DOTALL))


def test_the_mirrors_are_what_the_compiler_makes_of_the_header(tmp_path: Path) -> None:
    lines: list[str] = []
    for struct_name, body in header_structs().items():
        lines.append(f'printf("{struct_name}  0 %zu\\n", sizeof({struct_name}));')
        for field in re.findall(r"(\w+)(?:\[\w+\])*;", body):
            lines.append(
                f'printf("{struct_name} {field} %zu %zu\\n", offsetof({struct_name}, {field}), '
                f"sizeof((({struct_name} *)0)->{field}));"
            )
    program = compile_c(
        tmp_path,
        f"#include <stdio.h>\n{INCLUDES}int main(void) {{" + "".join(lines) + "}\n",
    )
    printed = subprocess.run([str(program)], capture_output=True, check=True, text=True).stdout
    compiled: library.Layout = {}
    for line in printed.splitlines():
        struct_name, field, offset, size = line.split(" ")
        compiled[(struct_name, field)] = (int(offset), int(size))
    assert library.compare(structs.ABI_VERSION, compiled) == []


def test_constants_are_those_of_the_header() -> None:
    text = HEADERS_TEXT
    values = {name: int(value) for name, value in re.findall(r"(LUMEN_\w+) = (-?\d+)", text)}
    values["LUMEN_ABI_VERSION"] = int(re.findall(r"#define LUMEN_ABI_VERSION (\d+)u", text)[0])
    assert structs.ABI_VERSION == values["LUMEN_ABI_VERSION"]
    for code, name in structs.ERROR_NAMES.items():
        assert values[name] == code
    for code, state in stats_structs.STATES.items():
        assert values[f"LUMEN_STATE_{state.upper()}"] == code
    for code, role in stats_structs.ROLES.items():
        assert values[f"LUMEN_ROLE_{role.upper()}"] == code
    assert structs.WORKERS_MAX == values["LUMEN_WORKERS_MAX"]
    assert structs.SLOT_CLASSES_MAX == values["LUMEN_SLOT_CLASSES_MAX"]
    assert setting_types.MODELS_MAX == values["LUMEN_MODELS_MAX"]
    assert settings.KEYS_MAX == values["LUMEN_KEYS_MAX"]
    assert settings.HOSTS_MAX == values["LUMEN_HOSTS_MAX"]
    assert structs.KEY_ADMIN == values["LUMEN_KEY_ADMIN"]
    assert structs.KEY_BULK == values["LUMEN_KEY_BULK"]
    assert structs.LOAD_GENTLY == values["LUMEN_LOAD_GENTLY"]
    assert set(structs.ERROR_NAMES) == {structs.E_INVALID, *range(-7, -1), structs.E_AGAIN}
    assert (structs.E_INVALID, structs.E_AGAIN) == (
        values["LUMEN_E_INVALID"],
        values["LUMEN_E_AGAIN"],
    )
    for kind in ("COUNTER", "GAUGE", "HISTOGRAM", "MODEL_HISTOGRAM"):
        assert getattr(stats_structs, f"FIELD_{kind}") == values[f"LUMEN_FIELD_{kind}"]
    assert f'LUMEN_STATS_MAGIC "{stats_structs.STATS_MAGIC.decode()}"' in text
    limits = (INCLUDE.parent / "src" / "base" / "limits.h").read_text()
    assert f"LM_TENSOR_NAME_BYTES_MAX = {setting_types.DIM_NAME_BYTES_MAX + 1}," in limits
    assert "LM_SERVER_NAME_BYTES_MAX = 65," in limits
    assert "{1,64}" in settings._SERVER_NAME_PATTERN
    assert f" LM_NAME_BYTES_MAX = {setting_types.NAME_BYTES_MAX + 1}," in limits
    assert " LM_KEY_NAME_BYTES_MAX = 64," in limits
    assert setting_keys.KEY_NAME_PATTERN.endswith("{1,63}")


def test_every_range_and_every_choice_is_that_of_the_header(tmp_path: Path) -> None:
    """settings/schema.py and lumen_open accept the same ranges, where "auto" and null are 0."""
    program = compile_c(
        tmp_path,
        '#include <stdio.h>\n#include "lumen.h"\n#define FIELD(type, name)\n'
        "#define SETTING(section, type, name, least, most) \\\n"
        '  printf(#section "." #name " %llu %llu " #least "\\n", \\\n'
        "         (unsigned long long)(least), (unsigned long long)(most));\n"
        "int main(void) { LUMEN_CONFIG_FIELDS(SETTING, FIELD) LUMEN_MODEL_SETTINGS(SETTING) }\n",
    )
    printed = subprocess.run([str(program)], capture_output=True, check=True, text=True).stdout
    header = {row[0]: row[1:] for row in (line.split(" ", 3) for line in printed.splitlines())}
    enumerators = dict(re.findall(r"(LUMEN_\w+) = (-?\d+)", HEADERS_TEXT))
    ranges, choices = {}, 0
    of_models = (("models", name, field) for name, field, _limits in config_struct.ordinary())
    for section, name, field in (*config_struct.crossing(), *of_models):
        limits = config_struct.whole_range(field)
        if limits is None:
            continue
        ranges[f"{section}.{name}"] = [str(limit) for limit in limits]
        if get_origin(field.annotation) is Literal:
            prefix = header[f"{section}.{name}"][2].rpartition("_")[0]
            for number, word in enumerate(get_args(field.annotation)):
                last = {"io_uring": "URING", "lumen_arena": "ARENA", "onnxruntime": "ORT"}.get(
                    word, str(word).upper()
                )
                assert enumerators[f"{prefix}_{last}"] == str(number), word
            choices += 1
    assert ranges == {key: row[:2] for key, row in header.items()}
    assert (len(ranges) > 20, choices) == (True, 12)


def test_every_function_of_the_header_has_its_types() -> None:
    declared = re.findall(r"LUMEN_API [\w ]+?[ *](lumen_\w+)\(", HEADERS_TEXT)
    assert [name for name, _restype, _argtypes in functions.FUNCTIONS] == declared


SCALARS: dict[str, Any] = {
    "void": None,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
    "lumen_server *": ctypes.c_void_p,
    "lumen_tokenizer *": ctypes.c_void_p,
    "void *": ctypes.c_void_p,
    "char *": ctypes.c_char_p,
    **functions.MIRRORS,
}


def ctype(declared: str) -> Any:
    """The ctypes type of a type as C writes it, without `const`; a text is a char pointer."""
    text = " ".join(declared.replace("const", "").replace("*", " * ").split())
    if text in SCALARS:
        return SCALARS[text]
    assert text.endswith("*"), declared
    return ctypes.POINTER(ctype(text.removesuffix("*")))


def test_every_function_and_every_field_has_the_headers_type() -> None:
    """Sizes are compared when the library is loaded; signs, floats and pointers are not."""
    text = re.sub(r"/\*.*?\*/", "", HEADERS_TEXT, flags=re.DOTALL)
    found = {name: (restype, argtypes) for name, restype, argtypes in functions.FUNCTIONS}
    for result, name, inside in re.findall(
        r"LUMEN_API ([\w ]+?[ *]+)(lumen_\w+)\((.*?)\);", text, re.DOTALL
    ):
        arguments = (
            [] if inside == "void" else [one.rpartition(" ")[::2] for one in inside.split(",")]
        )
        types = [ctype(kind + "*" * last.count("*")) for kind, last in arguments]
        if name in BUFFERS:  # not a text
            types[-2] = ctypes.POINTER(ctypes.c_char)
        if name == "lumen_make_certificate":  # two of them
            types[1:3] = [ctypes.POINTER(ctypes.c_char)] * 2
        assert found[name] == (ctype(result), tuple(types)), name
    for name, body in header_structs().items():
        fields = {field[0]: field[1] for field in functions.MIRRORS[name]._fields_}
        for kind, field, length in re.findall(r"([\w *]+[ *])(\w+)((?:\[\w+\])?);", body):
            wanted = ctype(kind)
            have = fields[field]._type_ if length else fields[field]  # type: ignore[attr-defined]
            assert have is wanted, f"{name}.{field}"


def test_the_comparison_goes_both_ways() -> None:
    layout = library.mirrored_layout()
    assert library.compare(structs.ABI_VERSION, layout) == []
    (problem,) = library.compare(structs.ABI_VERSION + 1, layout)
    assert problem == f"expected ABI version {structs.ABI_VERSION}, found {structs.ABI_VERSION + 1}"
    moved = {**layout, ("lumen_model_config", "max_rows"): (8, 4)}
    assert library.compare(structs.ABI_VERSION, moved) == [
        "lumen_model_config.max_rows: expected 4 bytes at 28, found 4 bytes at 8"
    ]
    fewer = {key: value for key, value in layout.items() if key != ("lumen_info", "slots")}
    (problem,) = library.compare(structs.ABI_VERSION, fewer)
    assert problem == "lumen_info.slots: expected 4 bytes at 32, found nothing"
    more = {**layout, ("lumen_new", ""): (0, 8)}
    (problem,) = library.compare(structs.ABI_VERSION, more)
    assert problem == "lumen_new: expected nothing, found 8 bytes at 0"


STUBS = "".join(
    f"void {name}(void) {{}}\n" for name, _r, _a in functions.FUNCTIONS if name != "lumen_abi"
)
ABI = """
struct field { const char *a, *b; unsigned offset, size; };
static const struct field table[] = {{"lumen_info", "", 0, 1}};
const struct field *lumen_abi(unsigned *version, unsigned *count)
{ *version = VERSION; *count = 1; return table; }
"""


SHOWN = len(library.mirrored_layout()) - 4


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (STUBS, "has no function lumen_abi"),
        (
            STUBS + ABI.replace("VERSION", str(structs.ABI_VERSION + 1)),
            # Nothing else: its table may be of another form.
            "does not fit this Python package: "
            f"expected ABI version {structs.ABI_VERSION}, found {structs.ABI_VERSION + 1}. Build",
        ),
        (
            STUBS + ABI.replace("VERSION", str(structs.ABI_VERSION)),
            "lumen_abi_field: expected 24 bytes at 0, found nothing",
        ),
        (
            STUBS + ABI.replace("VERSION", str(structs.ABI_VERSION)),
            f"; and {SHOWN} more differences. Build",
        ),
    ],
)
def test_another_library_is_refused(tmp_path: Path, source: str, says: str) -> None:
    path = compile_c(tmp_path, source, "-shared", "-fPIC")
    with pytest.raises(LibraryError, match=re.escape(says)):
        library.load_from(path)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_text("no ELF")
    with pytest.raises(LibraryError, match="does not load"):
        library.load_from(path)


def test_the_environment_names_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.so"
    monkeypatch.setenv("LUMEN_LIBRARY", str(path))
    with pytest.raises(LibraryError, match="which is no file"):
        library.find()
    path.touch()
    assert library.find() == path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LUMEN_LIBRARY", "mine.so")
    assert library.find() == path  # wherever the process goes afterwards


def test_the_installed_library_comes_before_the_checkouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LUMEN_LIBRARY", raising=False)
    package = tmp_path / "lumen_uring" / "ring"
    monkeypatch.setattr(library, "__file__", str(package / "library.py"))
    installed = package / library.LIBRARY_NAME
    built = tmp_path / "c" / "build" / "release" / library.LIBRARY_NAME
    with pytest.raises(LibraryError) as caught:
        library.find()
    assert str(caught.value).endswith(f"Looked at {installed} and {built}.")
    for path in (built, installed):
        path.parent.mkdir(parents=True)
        path.touch()
        assert library.find() == path


def test_importing_the_package_loads_nothing() -> None:
    code = (
        "import sys, lumen_uring.cli, lumen_uring; "
        "print([m for m in ('numpy', 'pydantic', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_finds_the_runtime_without_importing_it() -> None:
    path = onnxruntime_path.find()
    assert path.is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+", onnxruntime_path.version(path))


def wheel(directory: Path, *names: str) -> None:
    capi = directory / "fakert" / "capi"
    capi.mkdir(parents=True)
    (directory / "fakert" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    for name in names:
        (capi / name).touch()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("libonnxruntime.so.1.9.0", "libonnxruntime.so.1.30.1"), "libonnxruntime.so.1.30.1"),
        (("libonnxruntime.so",), "libonnxruntime.so"),
        (("libonnxruntime_providers_shared.so",), None),
        (("libonnxruntime.so.1.26.3",), None),
        (("libonnxruntime.so.1.27",), "libonnxruntime.so.1.27"),
        (("libonnxruntime.so.1.27.0",), "libonnxruntime.so.1.27.0"),
        (("libonnxruntime.so.1.26",), None),
        (("libonnxruntime.so.1.24.1", "libonnxruntime_providers_shared.so"), None),
        (
            ("libonnxruntime.so.1.24.1", "libonnxruntime_providers_openvino.so"),
            "libonnxruntime.so.1.24.1",
        ),
        (("libonnxruntime.so.1.16.1", "libonnxruntime_providers_openvino.so"), None),
        (("libonnxruntime.so.0.99.1",), None),
        (("libonnxruntime.so.2.0.0", "libonnxruntime.so.1.99.9"), "libonnxruntime.so.2.0.0"),
        (("libonnxruntime.so.1.30.1.4",), "libonnxruntime.so.1.30.1.4"),
        (("libonnxruntime.so.1.30.1", "libonnxruntime.so.1.30.1.bak"), "libonnxruntime.so.1.30.1"),
        (("libonnxruntime.so", "libonnxruntime.so.1.28.0"), "libonnxruntime.so.1.28.0"),
    ],
)
def test_picks_the_runtime_out_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], found: str | None
) -> None:
    wheel(tmp_path, *names)
    monkeypatch.syspath_prepend(str(tmp_path))
    if found is None:
        with pytest.raises(LibraryError, match="pip install"):
            onnxruntime_path.find("fakert")
    else:
        path = onnxruntime_path.find("fakert")
        assert path.name == found
        assert path.parent == tmp_path / "fakert" / "capi"
        version = found.removeprefix("libonnxruntime.so").removeprefix(".") or "unknown"
        assert onnxruntime_path.version(path) == version
    with pytest.raises(LibraryError, match="not installed"):
        onnxruntime_path.find("no_such_package")


@pytest.mark.usefixtures("c_library")
def test_the_built_library_fits() -> None:
    loaded = library.load()
    cpus = (ctypes.c_int32 * 1024)()
    assert loaded.lumen_usable_cpus(cpus, len(cpus)) >= 1
    assert loaded.lumen_version().decode()
    for name, restype, argtypes in functions.FUNCTIONS:
        function = getattr(loaded, name)
        assert (function.restype, tuple(function.argtypes)) == (restype, argtypes), name


def test_keys_and_hosts_cross_as_the_header_has_them(tmp_path: Path) -> None:
    from lumen_uring.config import load

    path = tmp_path / "config.yaml"
    path.write_text(
        "server:\n"
        "  rate: 2.5\n"
        "  max_in_flight: 7\n"
        "  overload: wait\n"
        "  hosts: [a.example, '*']\n"
        "  keys:\n"
        f"    - {{name: ada, sha256: '{'0f' * 32}', models: [c, a], rate: 3, burst: 9,\n"
        "       admin: true}\n"
        f"    - {{name: bob, sha256: '{'A0' * 32}'}}\n"
        "models: [{name: a, path: a}, {name: b, path: b}, {name: c, path: c}]\n"
    )
    native = config_struct.native_config(load(path), Path("/x.so"))
    assert (native.rate, native.burst, native.max_in_flight) == (2.5, 3, 7)
    assert native.overload == 1
    assert [native.hosts[index] for index in range(native.host_count)] == [b"a.example", b"*"]
    ada, bob = (native.keys[index] for index in range(native.key_count))
    assert (ada.name, bytes(ada.sha256), ada.models[: ada.model_count]) == (
        b"ada", b"\x0f" * 32, [b"c", b"a"],
    )  # fmt: skip
    assert (ada.rate, ada.burst, ada.flags) == (3, 9, structs.KEY_ADMIN)
    assert (bob.name, bytes(bob.sha256), bool(bob.models)) == (b"bob", b"\xa0" * 32, False)
    assert (bob.rate, bob.burst, bob.flags) == (0, 0, 0)
    plain = config_struct.native_config(load(), Path("/x.so"))
    assert (plain.key_count, plain.host_count, plain.max_in_flight, plain.burst) == (0, 0, 0, 0)


@pytest.mark.usefixtures("c_library")
def test_an_engine_is_refused_with_a_sentence_and_closes_twice() -> None:
    from lumen_uring.config import load
    from lumen_uring.ring.engine import Engine

    with pytest.raises(EngineError) as caught:
        Engine(load(None, ["server.port=0"]), Path("/no/libonnxruntime.so"))
    assert caught.value.code < 0
    assert len(str(caught.value)) > 10
    engine = Engine(load(None, ["server.port=0"]))
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.info()
