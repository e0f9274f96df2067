"""Arrays of other packages, where those packages are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weir.hosts.collectives.communicator import Communicator, wait_all
from weir.hosts.errors import CallMismatch, InvalidTensor
from weir.hosts.numerics import datatypes
from weir.hosts.numerics.bfloat16 import BFLOAT16
from weir.hosts.numerics.datatypes import FloatScalars, FloatType, register
from weir.hosts.numerics.scalars import ShortFloats
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises


def everywhere(call: Any) -> list[Any]:
    members = [Communicator(driver) for driver in MemoryJob(2).drivers]
    return wait_all([call(member) for member in members])


def test_bits_of_bfloat16_come_back_as_bits() -> None:
    for result in everywhere(lambda c: c.allreduce_async(np.array([0x3F80], np.uint16), dtype="bfloat16")):
        assert (result.dtype, result.tolist()) == (np.uint16, [0x4000])


def test_masked_arrays_are_refused() -> None:
    """Their masked elements are no numbers to sum, and a mask that one worker has is not the others'."""
    (member, _) = (Communicator(driver) for driver in MemoryJob(2).drivers)
    for call in (member.allreduce_async, member.broadcast_async, member.all_gather_async):
        masked = np.ma.array([1.0, 2.0], mask=[False, True])
        for array in (masked, [masked], [[1.0], (masked[:1],)], [1.0, np.ma.masked]):
            with pytest.raises(InvalidTensor, match="masked"):
                call(array)


def test_a_subclass_of_tensors_is_summed_as_a_tensor() -> None:
    torch = pytest.importorskip("torch")

    class Named(torch.Tensor):  # type: ignore[name-defined,misc]
        """Such as fastai's."""

    for kind in (torch.float32, torch.bfloat16):
        for result in everywhere(lambda c: c.allreduce_async(torch.ones(3, dtype=kind).as_subclass(Named))):  # noqa: B023
            assert (type(result), result.dtype, result.tolist()) == (torch.Tensor, kind, [2.0] * 3)


def test_a_tensor_that_holds_its_numbers_in_others_is_refused() -> None:
    torch = pytest.importorskip("torch")

    class Wrapper(torch.Tensor):  # type: ignore[name-defined,misc]
        """A wrapper like DTensor."""

        @classmethod
        def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
            raise AssertionError("its numbers are not its own")

    wrapped = torch.Tensor._make_wrapper_subclass(Wrapper, (3,), dtype=torch.float32)
    with pytest.raises(InvalidTensor):
        Communicator(MemoryJob(2).drivers[0]).allreduce_async(wrapped)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_workers_of_either_byte_order_meet_in_one_job(op: str) -> None:
    orders = (np.dtype(">f4"), np.dtype("<f4"))
    values = np.array([[1.5, -2.0], [3.0, 8.0]])
    reduction: Any = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[op]
    results = everywhere(lambda c: c.allreduce_async(values[c.rank].astype(orders[c.rank]), op=op))
    assert [result.dtype for result in results] == list(orders)
    assert [result.tolist() for result in results] == [reduction(values, axis=0).tolist()] * 2


def test_bit_patterns_cross_byte_orders() -> None:
    """Structures and dates included; bits in one byte order are the same bits in the other."""
    for little, values in (
        (np.dtype([("a", "<i2"), ("b", "<f8", (2,))]), [(1, (2.5, 3)), (-4, (5, 6))]),
        (np.dtype("<M8[s]"), ["2020-02-02T02:02:02", "1970-01-01T00:00:01"]),
        (np.dtype("<U3"), ["abc", "ü"]),
    ):
        array = np.array(values, little)
        orders = (little, little.newbyteorder(">"))
        for call, expected in (
            (lambda c: c.broadcast_async(array.astype(orders[c.rank]), root=1), array),  # noqa: B023
            (lambda c: c.all_gather_async(array.astype(orders[c.rank])), np.array([array, array])),  # noqa: B023
        ):
            results = everywhere(call)
            assert [result.dtype for result in results] == list(orders)
            for result in results:
                assert result.astype(little).tobytes() == expected.tobytes()
    bits = np.array([0x3F80], np.uint16)
    for result in everywhere(lambda c: c.allreduce_async(bits.astype((">u2", "<u2")[c.rank]), dtype="bfloat16")):
        assert result.tolist() == [0x4000]


class TestMlDtypes:
    ml_dtypes: Any = None

    @pytest.fixture(autouse=True)
    def _needed(self) -> None:
        TestMlDtypes.ml_dtypes = pytest.importorskip("ml_dtypes")

    def test_bfloat16_is_known_by_itself(self) -> None:
        bfloat16 = self.ml_dtypes.bfloat16
        values = np.random.default_rng(1).standard_normal((30, 20)).astype(bfloat16)
        for view in (values, values.T, values[::2, 3]):
            for op, expected in (
                ("sum", (view.astype(np.float64) * 2).astype(bfloat16)),
                ("mean", view),
                ("max", view),
            ):
                for result in everywhere(lambda c, view=view, op=op: c.allreduce_async(view, op=op)):
                    assert result.dtype == bfloat16
                    assert result.astype(np.float32).tolist() == expected.astype(np.float32).tolist()
        for result in everywhere(lambda c: c.all_gather_async(values)):
            assert result.dtype == bfloat16
            assert result.shape == (2, 30, 20)

    def test_several_arrays_and_their_means_keep_their_kind(self) -> None:
        bfloat16 = self.ml_dtypes.bfloat16
        gradient = np.array([4.0, -2.0]).astype(bfloat16)
        reduced = Communicator(MemoryJob(1).drivers[0]).allreduce_many({"g": gradient}, weight=7)["g"]
        assert (reduced.array.dtype, reduced.array.tolist()) == (bfloat16, [4.0, -2.0])
        expected = (np.array([4, -2]) / 7).astype(bfloat16)
        assert (reduced.mean().dtype, reduced.mean().tolist()) == (bfloat16, expected.tolist())

    def test_a_registered_type_works_in_every_collective(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = np.dtype(self.ml_dtypes.float8_e5m2)

        class Float8(FloatType):
            def scalars(self, workers: int, *, mean: bool) -> FloatScalars:
                return ShortFloats(self, workers)

            def widen(self, values: np.ndarray) -> np.ndarray:
                wide: np.ndarray = values.view(own).astype(np.float32)
                return wide

            def narrow(self, values: np.ndarray) -> np.ndarray:
                bits: np.ndarray = values.astype(own).view(np.uint8)
                return bits

        with raises(InvalidTensor, place="tensor 'tensor'"):
            everywhere(lambda c: c.allreduce_async(np.zeros(2, own)))
        monkeypatch.setattr(datatypes, "_REGISTERED", dict(datatypes._REGISTERED))
        register(Float8("float8_e5m2", np.uint8, digits=3, least=-16))
        arrays = [np.array([1, -2, 0.5, np.inf], own), np.array([2, 3, 0.25, np.nan], own)]
        for op, expected in (
            ("sum", [3, 1, 0.75, np.nan]),
            ("mean", [1.5, 0.5, 0.375, np.nan]),
            ("max", [2, 3, 0.5, np.nan]),
            ("min", [1, -2, 0.25, np.nan]),
        ):
            for result in everywhere(lambda c, op=op: c.allreduce_async(arrays[c.rank], op=op, nonfinite="propagate")):
                assert result.dtype == own
                assert np.array_equal(result.astype(np.float32), np.array(expected, np.float32), equal_nan=True), op
        with raises(InvalidTensor, place="tensor 'tensor'", value=3):
            everywhere(lambda c: c.allreduce_async(arrays[c.rank]))

    def test_rounding_is_that_of_ml_dtypes(self) -> None:
        bits = np.random.default_rng(2).integers(0, 2**32, 200_000, np.uint32)
        singles = bits.view(np.float32)
        singles = singles[~np.isnan(singles)]
        values = singles.astype(np.float64)
        expected = singles.astype(self.ml_dtypes.bfloat16)
        assert BFLOAT16.narrow(values).tobytes() == expected.tobytes()


class TestTorch:
    torch: Any = None

    @pytest.fixture(autouse=True)
    def _needed(self) -> None:
        TestTorch.torch = pytest.importorskip("torch")

    @pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
    @pytest.mark.parametrize("shape", [(), (0,), (3, 5), (700,)])
    def test_all_types_and_operations(self, dtype: str, shape: tuple[int, ...]) -> None:
        torch = self.torch
        kind = getattr(torch, dtype)
        parts = [(torch.randn(shape, generator=torch.Generator().manual_seed(i)) * 50).to(kind) for i in range(2)]
        both = torch.stack(parts)
        calls = {
            "sum": (lambda c: c.allreduce_async(parts[c.rank]), both.double().sum(0).to(kind)),
            "max": (lambda c: c.allreduce_async(parts[c.rank], op="max"), both.max(0).values),
            "min": (lambda c: c.allreduce_async(parts[c.rank], op="min"), both.min(0).values),
            "broadcast": (lambda c: c.broadcast_async(parts[c.rank], 1), parts[1]),
            "gather": (lambda c: c.all_gather_async(parts[c.rank]), both),
        }
        for name, (call, expected) in calls.items():
            for result in everywhere(call):
                assert result.dtype == kind, name
                assert result.shape == expected.shape, name
                if name == "sum" and kind.is_floating_point:  # values far apart: within the quantum
                    assert torch.allclose(result, expected, rtol=2**-7 if dtype == "bfloat16" else 1e-3)
                else:
                    assert torch.equal(result, expected), name

    def test_gradients_and_views(self) -> None:
        torch = self.torch
        parameter = torch.arange(12.0, requires_grad=True)
        view = parameter.reshape(3, 4).T
        for result in everywhere(lambda c: c.allreduce_async(view)):
            assert result.tolist() == (2 * view).tolist()
            assert not result.requires_grad
            result += 1  # it is the caller's own
        assert parameter.tolist() == list(range(12))

    def test_arrays_outside_memory_are_refused(self) -> None:
        member = Communicator(MemoryJob(1).drivers[0])
        with raises(InvalidTensor, place="tensor 'w'"):
            member.allreduce(self.torch.zeros(3, device="meta"), name="w")
        with raises(InvalidTensor, place="tensor 'w'"):
            member.allreduce(self.torch.zeros(3).to_sparse(), name="w")

    def test_conjugate_and_negative_views(self) -> None:
        tensor = self.torch.tensor([1 + 2j, 3j])
        for result in everywhere(lambda c: c.broadcast_async(tensor.conj())):
            assert result.tolist() == [1 - 2j, -3j]
        for result in everywhere(lambda c: c.allreduce_async(tensor.conj().imag)):
            assert result.tolist() == [-4.0, -6.0]

    def test_a_type_that_numpy_lacks_is_refused_by_name(self) -> None:
        member = Communicator(MemoryJob(1).drivers[0])
        small = self.torch.ones(3).to(self.torch.float8_e4m3fn)
        with raises(InvalidTensor, place="tensor 'w'"):
            member.broadcast(small, name="w")
        assert member.broadcast(small.view(self.torch.uint8)).view(small.dtype).tolist() == [1.0] * 3

    def test_numpy_and_torch_meet(self) -> None:
        members = [Communicator(driver) for driver in MemoryJob(2).drivers]
        handles = [members[0].allreduce_async(self.torch.ones(3)), members[1].allreduce_async(np.ones(3, np.float32))]
        assert [result.tolist() for result in wait_all(handles)] == [[2, 2, 2]] * 2
        handles = [members[0].allreduce_async(self.torch.ones(3)), members[1].allreduce_async(np.ones(3))]
        with pytest.raises(CallMismatch):
            handles[0].wait()
