"""The keys of a fabric's file, as pydantic models, and the JSON schema that is made of them."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from .errors import TopologyError
from .keys import Keys
from .model import ENDPOINT_PATTERN, LARGEST_MTU, MIN_MTU, NAME_PATTERN, Endpoint
from .targets import BMV2, TARGETS, Target, target_named
from .units import (
    DELAY_PATTERN,
    MEMORY_PATTERN,
    RATE_PATTERN,
    format_delay,
    format_rate,
    parse_delay,
    parse_memory,
    parse_rate,
)


def _rate(value: object) -> int:
    return _as_value_error(parse_rate, value)


def _delay(value: object) -> int:
    return _as_value_error(parse_delay, value)


def _memory(value: object) -> int:
    return _as_value_error(parse_memory, value)


def _as_value_error(parse: Any, value: object) -> int:
    try:
        parsed: int = parse(value)
    except TopologyError as error:
        raise ValueError(str(error)) from error
    return parsed


def _ends(value: object) -> tuple[Endpoint | str, Endpoint | str]:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(end, str) for end in value):
        raise ValueError(f"ends {value} is not two ports; write them like [h1, s1-p1], or [h1, s1] for the next port")
    return _end(value[0]), _end(value[1])


def _end(text: str) -> Endpoint | str:
    try:
        parsed = Endpoint.parse(text)
    except TopologyError as error:
        raise ValueError(f"ends: {error}") from error
    return parsed if "-" in text else parsed.node


def _address(value: object) -> IPv4Address:
    try:
        return IPv4Address(str(value))
    except ValueError:
        raise ValueError(f'address "{value}" is not an IPv4 address; write it like 10.0.1.1') from None


def _target(value: object) -> Target:
    try:
        return target_named(str(value))
    except TopologyError as error:
        raise ValueError(str(error)) from None


Rate = Annotated[int, BeforeValidator(_rate), WithJsonSchema({"type": "string", "pattern": RATE_PATTERN})]
Delay = Annotated[int, BeforeValidator(_delay), WithJsonSchema({"type": "string", "pattern": DELAY_PATTERN})]
Memory = Annotated[int, BeforeValidator(_memory), WithJsonSchema({"type": "string", "pattern": MEMORY_PATTERN})]
Loss = Annotated[float, Field(ge=0, lt=1)]
Queue = Annotated[int, Field(ge=1)]
Mtu = Annotated[int, Field(ge=MIN_MTU, le=LARGEST_MTU)]
Slots = Annotated[int, Field(ge=0)]
Address = Annotated[
    IPv4Address, BeforeValidator(_address), WithJsonSchema({"type": "string", "format": "ipv4"}, mode="validation")
]
Kind = Annotated[Target, BeforeValidator(_target), WithJsonSchema({"enum": list(TARGETS)})]
_NAMES: Final[dict[str, Any]] = {"propertyNames": {"pattern": NAME_PATTERN}}
"""Schema of the names of hosts and switches; `Topology` checks them."""
Ends = Annotated[
    tuple[Endpoint | str, Endpoint | str],
    BeforeValidator(_ends),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string", "pattern": ENDPOINT_PATTERN}, "minItems": 2, "maxItems": 2}
    ),
]


class DefaultsKeys(Keys):
    """Default settings of links and switches."""

    rate: Rate = 1_000_000_000
    """Rate of links, each direction, such as 200Mbit."""
    delay: Delay = 2_000
    """Delay of links, each direction, such as 10us."""
    loss: Loss = 0.0
    """Probability that a link loses a frame, each direction."""
    queue: Queue = 128
    """Packets that the egress queue at either end of a link holds."""
    mtu: Mtu = MIN_MTU
    """Bytes of an IPv4 packet that a link takes."""
    slots: Slots = BMV2.slots
    """Aggregation slots of a switch for all jobs; 0: it never sums."""
    target: Kind = BMV2
    """The kind of switch."""


class HostKeys(Keys):
    """Keys of one host in a topology file."""

    address: Address | None = None
    """Address in 10.0.0.0/12; by default the next free one."""
    mac: str = ""
    """A unicast MAC; without, 02:00 and the address."""
    accelerators: Annotated[int, Field(ge=0)] = 1
    """Accelerators for workers of all jobs."""
    memory: Memory = 0
    """Memory for workers of all jobs, such as 512GiB; without, a job that needs memory is not placed here."""


class SwitchKeys(Keys):
    """Keys of one switch in a topology file."""

    device_id: int | None = None
    """P4Runtime's, 1 … 65534; without, its place in the file."""
    slots: Slots | None = None
    """Aggregation slots for all jobs; 0: it never sums."""
    tier: str | None = None
    """Name of the level, such as leaf or core."""
    target: Kind | None = None
    """The kind of switch."""


class LinkKeys(Keys):
    """Keys of one link in a topology file."""

    ends: Ends
    """Two ports, such as s1-p3; a host is named alone, and so is a switch that gives its next free port."""
    rate: Rate | None = None
    """Each direction, such as 200Mbit."""
    delay: Delay | None = None
    """Each direction, such as 10us."""
    loss: Loss | None = None
    """Probability that a frame is lost, each direction."""
    queue: Queue | None = None
    """Packets that the egress queue at either end holds."""
    mtu: Mtu | None = None
    """Bytes of an IPv4 packet that it takes, 1500 … 9216."""


class FabricKeys(Keys):
    """A fabric, spelled out."""

    name: str
    defaults: DefaultsKeys = DefaultsKeys()
    hosts: dict[str, HostKeys | None] = Field(json_schema_extra=_NAMES)
    switches: dict[str, SwitchKeys | None] = Field(json_schema_extra=_NAMES)
    links: list[LinkKeys]


class LeafSpineKeys(DefaultsKeys):
    """Keys of a generated leaf-spine fabric."""

    kind: Literal["leaf-spine"]
    leaves: int
    spines: int
    hosts_per_leaf: int
    uplink_rate: Rate | None = None


class FatTreeKeys(DefaultsKeys):
    """Keys of a generated fat-tree of `k`-port switches."""

    kind: Literal["fat-tree"]
    k: int


class JellyfishKeys(DefaultsKeys):
    """Keys of a generated Jellyfish: a random regular graph of `switches`, each linked to `degree` others."""

    kind: Literal["jellyfish"]
    switches: int
    degree: int
    hosts_per_switch: int
    seed: int = 1


class RandomKeys(DefaultsKeys):
    """Keys of a generated random connected graph of `switches` with `links` links."""

    kind: Literal["random"]
    switches: int
    links: int
    hosts_per_switch: int
    seed: int = 1


class GeneratedKeys(Keys):
    """A fabric of one of the usual shapes."""

    name: str
    generate: Annotated[LeafSpineKeys | FatTreeKeys | JellyfishKeys | RandomKeys, Field(discriminator="kind")]


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a fabric's file, generated from the models that read it: it refuses what
    `load_topology` refuses.
    """
    return TypeAdapter(FabricKeys | GeneratedKeys).json_schema(schema_generator=_AsWritten)


class _AsWritten(GenerateJsonSchema):
    """Schema generator that writes the defaults of optional keys as the file would."""

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().default_schema(schema)
        default = schema.get("default")
        if isinstance(default, Target):
            made["default"] = default.name
        elif made.get("pattern") == RATE_PATTERN and isinstance(default, int):
            made["default"] = format_rate(default)
        elif made.get("pattern") == DELAY_PATTERN and isinstance(default, int):
            made["default"] = format_delay(default)
        elif isinstance(default, BaseModel):
            del made["default"]
        return made
