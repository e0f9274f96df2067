"""CompLL: generated codecs equal hand-written NumPy, types are checked, and sums by switches are derived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.hosts import Communicator, Compression
from weir.hosts.compression.codec import Context
from weir.hosts.compression.codecs import make_codec
from weir.hosts.compression.language.codec import load, same_bits
from weir.hosts.compression.language.homomorphism import derive
from weir.hosts.compression.language.program import CodecProgram
from weir.hosts.compression.trial import check, contributions
from weir.hosts.errors import InvalidCodec
from weir.hosts.numerics.draws import Draws
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises

FOLDER = ROOT / "examples" / "codecs"
NAMES = ("onebit", "tbq", "terngrad", "graddrop", "dgc")
SIZES = (*range(1, 41), 99, 100, 101, 600, 1000, 70_001)
Made = tuple[bytes, np.ndarray]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.compll").read_text()


def word(number: int) -> bytes:
    return np.int32(number).tobytes()


def packed2(levels: np.ndarray) -> bytes:
    """Length, then four levels to a byte, the first in its highest bits."""
    rows = np.pad(levels.astype(np.uint8), (0, -levels.size % 4)).reshape(-1, 4)
    return word(levels.size) + (rows[:, 0] << 6 | rows[:, 1] << 4 | rows[:, 2] << 2 | rows[:, 3]).tobytes()


def summed(values: np.ndarray) -> np.float32:
    """The sum in float64, in 64 parts by the number of the element, before a filter."""
    parts = np.zeros(64)
    for start in range(0, values.size, 64):
        row = values[start : start + 64]
        parts[: row.size] += row
    total = 0.0
    for part in parts:
        total += part
    return np.float32(total)


def onebit(values: np.ndarray, draws: Draws) -> Made:
    above, below = values[values >= 0], values[values < 0]
    high = summed(np.where(values >= 0, values, 0)) / np.float32(max(above.size, 1))
    low = summed(np.where(values < 0, values, 0)) / np.float32(max(below.size, 1))
    signs = np.packbits(values >= 0).tobytes()
    return high.tobytes() + low.tobytes() + word(values.size) + signs, np.where(values >= 0, high, low)


def tbq(values: np.ndarray, draws: Draws) -> Made:
    threshold = np.float32(0.01)
    levels = 1 + (values >= threshold).astype(np.int64) - (values <= -threshold)
    return packed2(levels), (levels - 1).astype(np.float32) * threshold


def terngrad(values: np.ndarray, draws: Draws) -> Made:
    scale = np.abs(values).max()
    uniform = draws.own_uniform(np.zeros(1, np.uint32), values.size)[0]
    levels = np.floor(values / scale + np.float32(1) + uniform).clip(0, 3).astype(np.int64)
    return scale.tobytes() + packed2(levels), (levels - 1).astype(np.float32) * scale


def sampled(values: np.ndarray, draws: Draws) -> tuple[np.ndarray, int]:
    """The indices that reach the sampled threshold, and the most that DGC keeps."""
    count = min(1000, values.size)
    uniform = draws.own_uniform(np.zeros(1, np.uint32), count)[0]
    at = (uniform * np.float32(values.size)).astype(np.int64).clip(0, values.size - 1)
    ordered = np.sort(np.abs(values[at]))[::-1]
    threshold = ordered[int(np.float32(0.01) * np.float32(count))]
    most = max(int(np.float32(0.01) * np.float32(values.size)), 1)
    return np.flatnonzero((np.abs(values) >= threshold) & (values != 0)), most


def sparse(values: np.ndarray, at: np.ndarray) -> Made:
    numbers = np.zeros_like(values)
    numbers[at] = values[at]
    return word(at.size) + at.astype(np.int32).tobytes() + word(at.size) + values[at].tobytes(), numbers


def graddrop(values: np.ndarray, draws: Draws) -> Made:
    return sparse(values, sampled(values, draws)[0])


def dgc(values: np.ndarray, draws: Draws) -> Made:
    at, most = sampled(values, draws)
    if at.size > most:
        limit = np.sort(np.abs(values[at]))[::-1][most - 1]
        at = at[np.abs(values[at]) >= limit][:most]
    return sparse(values, at)


HAND_WRITTEN: dict[str, Callable[[np.ndarray, Draws], Made]] = {
    "onebit": onebit,
    "tbq": tbq,
    "terngrad": terngrad,
    "graddrop": graddrop,
    "dgc": dgc,
}


@pytest.mark.parametrize("native", [False, True], ids=["NumPy", "native"])
@pytest.mark.parametrize("name", NAMES)
def test_a_generated_codec_equals_the_hand_written_one(name: str, native: bool) -> None:
    text = text_of(name)
    assert len(text.splitlines()) <= 40
    program = CodecProgram(text, name, native=native)
    for size in SIZES:
        values = (np.random.default_rng(size).standard_normal(size) * 0.01).astype(np.float32)
        draws = Draws(size, 2)
        code, numbers = HAND_WRITTEN[name](values, draws)
        made = program.encode(values, draws)
        assert made.tobytes() == code, size
        assert program.decode(made, size).tobytes() == numbers.astype(np.float32).tobytes(), size


@pytest.mark.parametrize("native", [False, True], ids=["NumPy", "native"])
@pytest.mark.parametrize("name", ["graddrop", "dgc"])
def test_sparse_codecs_send_a_number_of_any_array(name: str, native: bool) -> None:
    """Also of few numbers and of equal ones; of zeros they send none."""
    program = CodecProgram(text_of(name), name, native=native)
    rng = np.random.default_rng(1)
    for size in (*range(1, 102), *range(102, 601, 9), 4099):
        arrays = {"normal": rng.standard_normal(size), "alike": rng.choice([-2.0, 2.0], size)}
        for case, array in arrays.items():
            values = array.astype(np.float32)
            code, numbers = HAND_WRITTEN[name](values, Draws(size, 1))
            made = program.encode(values, Draws(size, 1))
            assert made.tobytes() == code, (size, case)
            sent = np.flatnonzero(program.decode(made, size))
            assert sent.size >= 1, (size, case)
            assert numbers[sent].tobytes() == values[sent].tobytes()
            if name == "dgc":
                assert sent.size <= max(1, int(0.01 * size)), (size, case)
    assert not program.decode(program.encode(np.zeros(50, np.float32), Draws()), 50).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_a_codec_that_keeps_its_contract(name: str) -> None:
    found = check(load(str(FOLDER / f"{name}.compll"), native=False))
    assert found.homomorphic == (name in ("tbq", "terngrad"))
    assert found.linear
    assert same_bits(str(FOLDER / f"{name}.compll"))


def test_a_threshold_codec_sums_as_the_built_in_one() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(3000).astype(np.float32) for _ in range(5)]
    contexts = [Context(3000, 5, Draws(3, rank)) for rank in range(5)]
    own = make_codec(str(FOLDER / "tbq.compll"), threshold=0.5)
    built_in = make_codec("tbq", threshold=0.5)
    results = [codec.merge(arrays, contexts[0]) for codec in (own, built_in)]
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_error_feedback_is_the_default_where_errors_stay_bounded(name: str) -> None:
    path = str(FOLDER / f"{name}.compll")
    kept = [Compression.named(path, feedback=feedback).codec.keeps_residuals for feedback in (None, True, False)]
    assert kept == [name != "terngrad", True, False]


@pytest.mark.parametrize(("name", "bounded"), [("terngrad", False), ("onebit", True)])
def test_what_feedback_keeps_grows_if_a_code_adds_more_than_the_numbers(name: str, bounded: bool) -> None:
    codec = Compression.named(str(FOLDER / f"{name}.compll"), feedback=True).codec
    gradient = np.random.default_rng(2).standard_normal(500).astype(np.float32)
    sizes = []
    for step in range(30):
        values = codec.compensate("g", gradient)
        codec.update("g", values, contributions(codec, [values], seed=step)[0])
        sizes.append(float(np.linalg.norm(codec.compensate("g", np.zeros_like(gradient)))))
    assert (sizes[-1] < 5 * sizes[2]) is bounded


@pytest.mark.parametrize("name", NAMES)
def test_codecs_by_file_are_summed_by_a_job(name: str) -> None:
    """Through the switches if that was derived, else gathered, whatever the lengths of codes."""
    job = MemoryJob(3)
    members = [Communicator(driver, timeout_s=1) for driver in job.drivers]
    compressions = [Compression.named(str(FOLDER / f"{name}.compll"), feedback=False) for _ in members]
    rng = np.random.default_rng(4)
    arrays = [(rng.standard_normal(2000) * 0.02).astype(np.float32) for _ in members]
    handles = [
        member.allreduce_async(array, compression=compression)
        for member, array, compression in zip(members, arrays, compressions, strict=True)
    ]
    for handle in handles:
        handle.done()
    results = [handle.wait() for handle in handles]
    assert len({result.tobytes() for result in results}) == 1
    assert np.corrcoef(results[0], np.sum(arrays, axis=0))[0, 1] > 0.1


# --- homomorphism -----------------------------------------------------------------------------------------------------

MUTANTS = [
    ("terngrad", "common float scale", "float scale"),
    ("terngrad", "(level - 1) * scale", "(level - 1) * (level - 1) * scale"),
    ("terngrad", "(level - 1) * scale", "level > 1 ? scale : -scale"),
    ("terngrad", "(level - 1) * scale", "scale / (level + 1)"),
    ("terngrad", "(level - 1) * scale", "abs(level - 1) * scale"),
    ("terngrad", "concat(scale, q)", "concat(q, scale, q)"),
    ("terngrad", "uint2* q = map", "gradient = map(gradient, [](float x) -> float { return 2 * x; }); uint2* q = map"),
    ("terngrad", "extract(packed, scale, q);", "extract(packed, scale, q); scale = 2 * scale;"),
    ("terngrad", "common float scale", "float m = 1; m = 2; common float scale"),
    ("terngrad", "return scale > 0", "return scale > 0 && size > 0"),
    ("tbq", "(level - 1) * threshold", "(level - 1) * threshold * size"),
    ("tbq", "(level - 1) * threshold", "floor(level / 2) * threshold"),
    ("tbq", "map(gradient, [](float x)", "map(filter(gradient, [](float y) -> bool { return y > 0; }), [](float x)"),
    ("tbq", "x >= threshold ?", "x >= gradient[0] ?"),
    ("tbq", "uint2* q = map", "int* q = map"),
]


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS)
def test_codes_that_cannot_be_summed_are_found(name: str, old: str, new: str) -> None:
    text = text_of(name)
    assert old in text
    if new.startswith("int*"):
        text = (
            text.replace("-> uint2", "-> int").replace("uint2* q;", "int* q;").replace("(uint2 level)", "(int level)")
        )
    program = CodecProgram(text.replace(old, new), "mutant", native=False)
    assert derive(program.checked).reason


def test_a_field_of_another_type_in_decode_is_found() -> None:
    head, tail = text_of("terngrad").split("float* decode")
    program = CodecProgram(f"{head}float* decode{tail.replace('uint2', 'uint4')}", "mutant", native=False)
    assert "uint2*" in derive(program.checked).reason


@pytest.mark.parametrize("new", ["level * scale - scale", "-(scale * (1 - level))", "(level - 1) * (scale / 1.0)"])
def test_affine_forms_are_summed(new: str) -> None:
    program = CodecProgram(text_of("terngrad").replace("(level - 1) * scale", new), "form", native=False)
    assert derive(program.checked).homomorphic


def test_a_codec_in_python_with_a_false_claim_is_found() -> None:
    class Forgetful(type(make_codec("topk"))):  # type: ignore[misc]
        def merge(self, codes: Any, context: Context) -> np.ndarray:
            result: np.ndarray = self.decode(codes[0], context)
            return result

    with pytest.raises(InvalidCodec):
        check(Forgetful("topk", 0.5))


SCALED = """code encode(float* g) {{
    common float s = {scale};
    uint2* q = map(g, [](float x) -> uint2 {{ return floor({level}); }});
    return concat(s, q);
}}
float* decode(code c) {{
    float s;
    uint2* q;
    extract(c, s, q);
    return map(q, [](uint2 level) -> float {{ return (level - 1) * {back}; }});
}}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SCALED.format(scale="1 / reduce(g, sum) * 0", level="x / s + 1", back="s"), "NaN"),
        (SCALED.format(scale="sqrt(0 - 1 - reduce(g, max))", level="x / s + 1", back="s"), "scale"),
        (SCALED.format(scale="reduce(g, max)", level="1 + x", back="1 / (s - s)"), "become"),
        ("", "become nan"),
    ],
    ids=["a scale of zeros", "a root", "in decode", "gathered"],
)
def test_codecs_that_make_no_numbers_are_refused_in_plain_words(text: str, words: str, tmp_path: Path) -> None:
    text = text or GOOD.format(
        statements="float s = reduce(g, sum); g = map(g, [](float x) -> float { return x / s; });"
    )
    (tmp_path / "broken.compll").write_text(text)
    with pytest.raises(InvalidCodec) as raised:
        check(load(str(tmp_path / "broken.compll"), native=False))
    assert words in str(raised.value)
    assert "finite numbers" in str(raised.value)


# --- errors -----------------------------------------------------------------------------------------------------------

GOOD = """code encode(float* g) {{
    {statements}
    return concat(g);
}}
float* decode(code c) {{
    float* g;
    extract(c, g);
    return g;
}}
"""


@pytest.mark.parametrize(
    ("statements", "place", "value"),
    [
        ("float x = map(g, [](float y) -> float { return y; });", "2:15", "float*"),
        ("int n = 1.5;", "2:13", "float"),
        ("float x = h;", "2:15", "h"),
        ("float x = g;", "2:15", "float*"),
        ("float* h = map(g, [](int i) -> float { return 1; });", "2:23", "int"),
        ("float* h = filter(g, [](float x) -> float { return x; });", "2:26", "float"),
        ("float s = reduce(g, product);", "2:25", "product"),
        ("float* h = sort(g, sum);", "2:24", "sum"),
        ("float s = twice(g);", "2:15", "twice"),
        ("float r = random(0, 1);", "2:15", "random"),
        ("float a = abs(1, 2);", "2:15", "2"),
        ("float g = 1;", "2:5", "g"),
        ("common int n = 1;", "2:5", "int"),
        ("int n = 3 % 1.5;", "2:13", "%"),
        ("float b = 1 < 2;", "2:15", "bool"),
        ("float s = g[0.5];", "2:17", "float"),
        ("int n = size.size;", "2:13", "int"),
        ("float* h = map(g, [](float x) -> float { return reduce(g, sum); });", "2:53", "reduce"),
        ("if (1) { }", "2:9", "int"),
        ("int n = 9223372036854775808;", "2:13", "9223372036854775808"),
        ("float x; if (size > 9) { x = 1; } float y = x;", "2:49", "x"),
        ("float x; float* h = map(g, [](float y) -> float { return x; });", "2:62", "x"),
    ],
)
def test_types_that_do_not_fit_are_named_by_line_and_column(statements: str, place: str, value: str) -> None:
    with raises(InvalidCodec, place=f"a.compll:{place}", value=value):
        CodecProgram(GOOD.format(statements=statements), "a.compll", native=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "code encode(float* g) { return concat(g) }",
        "code encode(float* g) { return concat(g); }",
        "float encode(float* g) { return 1; } float* decode(code c) { float* g; extract(c, g); return g; }",
        GOOD.format(statements="") + "float* other(code c) { float* g; extract(c, g); return g; }",
        "param bool b = 1;",
        "code encode(float* g) { ",
        "$",
        GOOD.format(statements=f"float s = {'-' * 3000}1;"),
        GOOD.format(statements=f"float s = {'1 + ' * 9000}1;"),
        GOOD.format(statements="if (true) {" * 500 + "}" * 500),
        GOOD.format(statements=f"int s = {'1' * 5000};"),
        GOOD.format(statements="float s = 1;\n" * 9000),
        GOOD.format(statements="int s = \u0663;"),
        "param float t = 1; param float t = 2;" + GOOD.format(statements=""),
        "param float g = 1;" + GOOD.format(statements=""),
        "param int t = 0.5;" + GOOD.format(statements=""),
        "param int t = 1e400;" + GOOD.format(statements=""),
        "code encode(float* g) { return concat(g); }" + GOOD.format(statements=""),
        GOOD.format(statements="if (size > 9) { return concat(g); }").replace("    return concat(g);\n", ""),
    ],
    ids=range(20),
)
def test_texts_that_are_no_codec_are_refused(text: str) -> None:
    with pytest.raises(InvalidCodec):
        CodecProgram(text, "a.compll", native=False)


def test_a_name_that_every_way_gives_a_value_has_one() -> None:
    ways = "float x; if (size > 9) { x = 1; } else { if (size > 1) { x = 2; } else { return concat(g); } } g = map(g, "
    program = CodecProgram(
        GOOD.format(statements=ways + "[](float y) -> float { return x; });"), "a.compll", native=False
    )
    values = np.zeros(3, np.float32)
    assert program.decode(program.encode(values, Draws()), 3).tolist() == [2, 2, 2]


@pytest.mark.parametrize("count", [1_000_000_000_000, -5])
def test_a_range_beyond_memory_is_refused_when_it_is_made(count: int) -> None:
    program = CodecProgram(GOOD.format(statements=f"int* q = range({count});"), "a.compll", native=False)
    with raises(InvalidCodec, value=count):
        program.encode(np.zeros(1, np.float32), Draws())


def test_parameters_and_files_are_checked(tmp_path: Path) -> None:
    with raises(InvalidCodec, allowed=("threshold",)):
        CodecProgram(text_of("tbq"), "tbq", native=False, params={"ratio": 1})
    with pytest.raises(InvalidCodec):
        load(str(tmp_path / "none.compll"))
    with pytest.raises(InvalidCodec):
        load("/dev/zero")
    (tmp_path / "bytes.compll").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidCodec):
        load(str(tmp_path / "bytes.compll"))
    program = CodecProgram(GOOD.format(statements=""), "plain", native=False)
    with pytest.raises(InvalidCodec):
        program.decode(np.zeros(6, np.uint8), 3)
    values = np.arange(3, dtype=np.float32)
    assert program.decode(program.encode(values, Draws()), 3).tolist() == [0, 1, 2]
    with pytest.raises(InvalidCodec):
        program.decode(program.encode(values, Draws()), 4)


def test_operators_have_their_values_at_the_edges() -> None:
    text = GOOD.format(
        statements="""
    float* none = filter(g, [](float x) -> bool { return x > 9 && !(x < 0) || x > 99; });
    float zero = reduce(none, sum) + reduce(none, max) + sqrt(4) - 2;
    int* order = sort(range(4), greater);
    int third = order[7] + order[-3] % 4;
    uint8* low = map(g, [](float x) -> uint8 { float y = x * 1000; return y; });
    float first = none[0] + float(third) + low[1];
    if (g.size > 2) { first = first + 1; } else { first = 0; }
    g = map(g, [](float x) -> float { return min(x, 1) + max(first, zero); });
"""
    )
    for native in (False, True):
        program = CodecProgram(text, "edges", native=native)
        code = program.encode(np.array([-1, 2, 3], np.float32), Draws())
        # order is 3, 2, 1, 0, so third = 0 + 3; low is 0, 255, 255
        assert program.decode(code, 3).tolist() == [-1 + 259, 1 + 259, 1 + 259]
