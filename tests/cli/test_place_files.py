"""Files of `weir place`: link loads that cannot be are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.cli.place_files import read_loads
from weir.experiments.errors import ExperimentError
from weir.topologies import leaf_spine
from weir.topologies.model import Endpoint


@pytest.mark.parametrize("value", ["30Gbit", "{rate: 1001Mbit, queue: 3}"])
def test_a_load_above_its_link_s_rate_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "loads.yaml"
    path.write_text(f"s1-p4: {value}\n")
    with pytest.raises(ExperimentError) as caught:
        read_loads(path, leaf_spine(4, 2, 3))
    assert "s1-p4" in str(caught.value)
    assert "more than the link's 1,000,000,000 bit/s" in str(caught.value)


def test_a_load_as_high_as_its_link_s_rate_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "loads.yaml"
    path.write_text("s1-p4: 1Gbit\n")
    (load,) = read_loads(path, leaf_spine(4, 2, 3)).values()
    assert load.background_bps == 1e9
    assert Endpoint("s1", 4) in read_loads(path, leaf_spine(4, 2, 3))
