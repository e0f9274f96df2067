"""Arrays of other packages, where those packages are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weir.hosts.collectives.communicator import Communicator, wait_all
from weir.hosts.errors import CallMismatch, InvalidTensor
from weir.tests.hosts.collectives.memory_driver import MemoryJob


def everywhere(call: Any) -> list[Any]:
    members = [Communicator(driver) for driver in MemoryJob(2).drivers]
    return wait_all([call(member) for member in members])


def test_bits_of_bfloat16_come_back_as_bits() -> None:
    for result in everywhere(lambda c: c.allreduce_async(np.array([0x3F80], np.uint16), dtype="bfloat16")):
        assert (result.dtype, result.tolist()) == (np.uint16, [0x4000])


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

    def test_rounding_is_that_of_ml_dtypes(self) -> None:
        from weir.hosts.numerics.datatypes import DataType, narrow

        bits = np.random.default_rng(2).integers(0, 2**32, 200_000, np.uint32)
        singles = bits.view(np.float32)
        singles = singles[~np.isnan(singles)]
        values = singles.astype(np.float64)
        expected = singles.astype(self.ml_dtypes.bfloat16)
        assert narrow(values, DataType.BFLOAT16).tobytes() == expected.tobytes()


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

    def test_what_is_not_in_memory_is_refused(self) -> None:
        member = Communicator(MemoryJob(1).drivers[0])
        with pytest.raises(InvalidTensor, match=r"tensor 'w': it is torch.strided on meta; make it a dense one"):
            member.allreduce(self.torch.zeros(3, device="meta"), name="w")
        with pytest.raises(InvalidTensor, match=r"torch.sparse_coo on cpu"):
            member.allreduce(self.torch.zeros(3).to_sparse(), name="w")

    def test_numpy_and_torch_meet(self) -> None:
        members = [Communicator(driver) for driver in MemoryJob(2).drivers]
        handles = [members[0].allreduce_async(self.torch.ones(3)), members[1].allreduce_async(np.ones(3, np.float32))]
        assert [result.tolist() for result in wait_all(handles)] == [[2, 2, 2]] * 2
        handles = [members[0].allreduce_async(self.torch.ones(3)), members[1].allreduce_async(np.ones(3))]
        with pytest.raises(CallMismatch):
            handles[0].wait()
