"""Compiles `kernels/`: WebAssembly for the page, a native library for CPython, a checked one for the tests.

- The compiler is `python -m ziglang cc`, pinned in pyproject.toml; the same sources give the same bytes on every machine.
- What was built lies in the cache under a hash of sources, flags and compiler, and is built once.
- What was built is put beside the modules that load it, `pyruntime/model/kernels_native/` and `kernels_wasm/`; without it
  the runtime computes with numpy.

`python -m tooling.kernels abi` writes `kernels/abi.h` anew from the table in `pyruntime/model/kernel_abi.py`;
`python -m tooling.kernels` builds everything.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyruntime.model.kernel_abi import header
from tooling.console import ToolingError, run_command, say
from tooling.files import write_whole
from tooling.hashes import sha256_of_parts
from tooling.paths import ROOT, cache_dir

SOURCES = ROOT / "kernels"
NATIVE = ROOT / "pyruntime" / "model" / "kernels_native"
WASM = ROOT / "pyruntime" / "model" / "kernels_wasm"

_ZIG = (sys.executable, "-m", "ziglang", "cc")
_COMMON = (
    "-O3", "-g0", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas",
    "-fno-math-errno",  # a square root is an instruction
    "-fno-strict-aliasing",  # operations are read as structures over words
    "-nostdinc++", "-fvisibility=hidden",
)  # fmt: skip
_NATIVE = ("-shared", "-fPIC", "-ffp-contract=fast", "-s", "-lpthread")
_WASM = (
    "-target", "wasm32-freestanding", "-msimd128", "-mbulk-memory", "-nostdlib",
    "-Wl,--no-entry", "-Wl,--import-memory", "-Wl,--strip-all", "-Wl,-z,stack-size=65536",
    "-Wl,--export=__heap_base", "-Wl,--export=__stack_pointer",
)  # fmt: skip
_RELAXED = ("-mrelaxed-simd",)
_SHARED = ("-matomics", "-Wl,--shared-memory", "-Wl,--max-memory=4294901760")  # 65,535 pages of 64 KiB
_SYSTEMS = {"linux": "linux-gnu.2.28", "darwin": "macos"}


@dataclass(frozen=True)
class Variant:
    """One build: the file's name, the compiler command, and whether it runs outside WebAssembly."""

    file: str
    command: tuple[str, ...]
    native: bool


WASM_VARIANTS = (
    Variant("kernels_simd.wasm", (*_ZIG, *_COMMON, *_WASM), native=False),
    Variant("kernels_relaxed.wasm", (*_ZIG, *_COMMON, *_WASM, *_RELAXED), native=False),
    Variant("kernels_simd_shared.wasm", (*_ZIG, *_COMMON, *_WASM, *_SHARED), native=False),
    Variant("kernels_relaxed_shared.wasm", (*_ZIG, *_COMMON, *_WASM, *_RELAXED, *_SHARED), native=False),
)


def native_variants() -> tuple[Variant, ...]:
    """The libraries for this machine: one for every processor of its kind, on x86-64 one more for those with AVX2."""
    system = _SYSTEMS.get(sys.platform)
    if system is None:
        raise ToolingError(f"{sys.platform}: the native kernels are built on Linux and macOS only; numpy computes here")
    kinds = {"x86_64": ("x86_64", {"baseline": "x86_64", "avx2": "x86_64_v3"}), "arm64": ("aarch64", {"baseline": ""})}
    machine = {"AMD64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    if machine not in kinds:
        raise ToolingError(f"{machine}: the native kernels are built for x86-64 and arm64 only; numpy computes here")
    architecture, processors = kinds[machine]
    return tuple(
        Variant(
            f"kernels-{name}.so",
            (
                *_ZIG,
                "-target",
                f"{architecture}-{system}",
                *((f"-march={march}",) if march else ()),
                *_COMMON,
                *_NATIVE,
            ),
            native=True,
        )
        for name, march in processors.items()
    )


def sanitized_variant() -> Variant | None:
    """A library that checks every access and every undefined operation; None without a system compiler (zig brings no
    runtime for AddressSanitizer).
    """
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    processor = ("-march=x86-64-v3",) if platform.machine() == "x86_64" else ()
    command = (compiler, "-O1", "-g", "-std=gnu11", "-fno-strict-aliasing", *processor, *checks, "-shared", "-fPIC")
    return Variant("kernels-sanitized.so", command, native=True)


def built(variant: Variant) -> Path:
    """The path of a build, from the cache or made."""
    sources = _read_sources()
    told = [part for part in variant.command if part != sys.executable]
    key = sha256_of_parts([*sources.items(), ("command", "\0".join(told).encode()), ("compiler", _version(told))])
    path = cache_dir() / "kernels" / key / variant.file
    if not path.exists():
        say(f"Compiling {variant.file}…")
        with tempfile.TemporaryDirectory(prefix="tinypylm-kernels-") as scratch, write_whole(path) as file:
            file.write(_compile(variant, sources, Path(scratch)))
    return path


def build_native() -> Path:
    """The folder of the native libraries, where `pyruntime` looks for them, brought up to date."""
    return _bring_up_to_date(NATIVE, native_variants())


def build_wasm() -> Path:
    """The folder of the WebAssembly modules, which the wheel of `pyruntime` carries, brought up to date."""
    return _bring_up_to_date(WASM, WASM_VARIANTS)


def _bring_up_to_date(folder: Path, variants: tuple[Variant, ...]) -> Path:
    for variant in variants:
        data, place = built(variant).read_bytes(), folder / variant.file
        if not place.exists() or place.read_bytes() != data:
            with write_whole(place) as file:
                file.write(data)
    return folder


def _version(command: list[str]) -> bytes:
    if "ziglang" not in command:
        return subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    if importlib.util.find_spec("ziglang") is None:
        raise ToolingError("ziglang is not installed, and the kernels are compiled by it: pip install -e .[build]")
    return importlib.metadata.version("ziglang").encode()


def _read_sources() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))}


def _compile(variant: Variant, sources: dict[str, bytes], scratch: Path) -> bytes:
    """The bytes of a build, made in a folder of its own so that no path of this machine gets into them."""
    for name, data in sources.items():
        (scratch / name).write_bytes(data)
    files = [n for n in sources if n.endswith(".c") and (variant.native or n != "platform_native.c")]
    cache = {name: str(cache_dir() / "zig") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    result = subprocess.run(
        [*variant.command, "-o", variant.file, *files],
        cwd=scratch,
        env={**os.environ, **cache},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise ToolingError(f"compiling {variant.file} failed:\n{result.stderr.strip()[-3000:]}\nCorrect kernels/")
    return (scratch / variant.file).read_bytes()


def main() -> int:
    """Build, or write the header; the exit code."""
    if sys.argv[1:] == ["abi"]:
        (SOURCES / "abi.h").write_text(header(), encoding="utf-8")
        return 0
    say(str(build_wasm()))
    say(str(build_native()))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
