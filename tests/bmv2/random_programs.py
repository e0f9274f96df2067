"""Random P4 programs for v1model, from a seed.

Parsers branch, look ahead, loop and reject. There are tables with constant and other entries, registers, counters,
meters, hashes and checksums; header stacks, unions, added and removed headers, and headers of varying length. In every
third program packets are copied, or pass ingress or all twice.

All are well-typed and defined: headers are read only if valid, and written whole if added; indices are below the sizes;
packets leave through ports 0 to 7. Copies access no register or meter behind the switch's queues, where several copies
are processed at once, nor any that they could reach from there again.
"""

from __future__ import annotations

import random
from typing import Final

from weir.tests.bmv2.expression_programs import DEPTH, WIDTHS, ExpressionProgram, type_name

CELLS: Final = 8
"""Cells of each register and counter, a power of two."""
MATCH_KINDS: Final = ("exact", "ternary", "lpm", "range")
LONGEST_RANGE: Final = 64
LONGEST_LPM: Final = 64
"""Longest prefix in a program's own entries: p4c does not accept longer masks as prefixes."""
TAGS: Final = 3
"""Elements of the header stack."""
SESSION, GROUP, KEPT = 3, 1, 1
"""A clone session, a multicast group, and the list of the metadata that copies keep."""
HASHES: Final = ("crc16", "crc32", "csum16", "xor16", "identity")

SIZES: Final = {"first": 7, "second": 4, "third": 3, "tags": 1, "either.left": 2, "either.right": 1}
"""Fields of each header, except the one that fills the last byte."""
LONGEST_DATA: Final = 64
"""Bits of the field of varying width."""

Variable = tuple[str, int, bool]
"""Name, width, and whether it has a sign."""
LAST_INDEX: Final[Variable] = ("hdr.tags.lastIndex", 32, False)
KIND: Final[Variable] = ("hdr.options.kind", 8, False)

TEMPLATE: Final = """#include <core.p4>
#include <v1model.p4>
error {{ Odd }}
{headers}
header_union either_t {{ either_left_t left; either_right_t right; }}
header options_t {{ bit<8> kind; varbit<{longest}> data; }}
struct headers_t {{
    first_t first; second_t second; third_t third; tags_t[{tags}] tags;
    either_t either; either_t other; options_t options; options_t spare;
}}
struct metadata_t {{ {metadata} @field_list({kept}) bit<1> again; }}
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
{parser}
}}
control Verify(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
{forward}
}}
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
{leave}
}}
control Update(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {update} }} }}
control Deparse(packet_out packet, in headers_t hdr) {{
    apply {{
        packet.emit(hdr.first); packet.emit(hdr.second); packet.emit(hdr.tags); packet.emit(hdr.either);
        packet.emit(hdr.options); packet.emit(hdr.third); packet.emit(hdr.other); packet.emit(hdr.spare);
    }}
}}
V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
"""


class RandomProgram(ExpressionProgram):
    """Random program: `source` is P4; `header_bytes` is the minimum length of its packets."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._copies = self._rng.random() < 0.35
        self._goes_again = self._copies and self._rng.random() < 0.3
        self._headers = {name: self._header(name, count) for name, count in SIZES.items()}
        self._metadata: list[Variable] = [
            (f"meta.m{i}", self._rng.choice(WIDTHS), self._rng.random() < 0.2) for i in range(4)
        ]
        self._metadata = [(name, width, signed and width > 1) for name, width, signed in self._metadata]
        self._base = self._headers["first"] + self._metadata
        self._variables = self._targets = self._base
        self.header_bytes = sum(width for _, width, _ in self._headers["first"]) // 8
        self.source = TEMPLATE.format(
            tags=TAGS,
            longest=LONGEST_DATA,
            kept=KEPT,
            headers="\n".join(
                self._declare(f"{name.replace('.', '_')}_t", fields) for name, fields in self._headers.items()
            ),
            metadata=" ".join(
                f"{f'@field_list({KEPT}) ' * (index % 2)}{type_name(width, signed)} {_short(name)};"
                for index, (name, width, signed) in enumerate(self._metadata)
            ),
            update=self._checksum(),
            parser=self._parser(),
            forward=self._control("f", tables=3),
            leave=self._control("l", tables=1),
        )

    # ---- headers and the parser

    def _header(self, name: str, count: int) -> list[Variable]:
        widths = self._rng.sample([width for width in WIDTHS if width <= 65], count)
        widths.append(-sum(widths) % 8 + 8)
        return [(f"hdr.{name}.f{i}", width, width > 1 and self._rng.random() < 0.2) for i, width in enumerate(widths)]

    def _declare(self, name: str, fields: list[Variable]) -> str:
        return f"header {name} {{ {' '.join(f'{type_name(w, signed)} {_short(n)};' for n, w, signed in fields)} }}"

    def _parser(self) -> str:
        states: tuple[str, ...] = ("second", "third", "tags", "left", "right", "options", "accept")
        everything = self._base
        if self._copies:  # bmv2 does not define the metadata in a clone's parser
            self._base = self._headers["first"]
        self._variables = self._targets = self._base
        lines = [f"    state start {{ packet.extract(hdr.first); {self._verified()} {self._select(states)} }}"]
        self._variables = self._targets = self._base + self._headers["second"]
        lines.append(
            f"    state second {{ packet.extract(hdr.second); {self._verified()} "
            + self._select(("third", "tags", "left", "options", "accept"))
            + " }"
        )
        last = self._base + self._element("last")
        self._variables, self._targets = [*last, LAST_INDEX], self._metadata
        assignment = self._statement()
        self._variables = self._targets = last  # by no index, which bmv2 cannot select by
        goes = self._select(("third", "right", "accept"), again="tags")
        lines.append(f"    state tags {{ packet.extract(hdr.tags.next); {assignment} {goes} }}")
        for which, states in (("left", ("right", "third", "options", "accept")), ("right", ("third", "accept"))):
            self._variables = self._targets = self._base + self._headers[f"either.{which}"]
            lines.append(f"    state {which} {{ packet.extract(hdr.either.{which}); {self._select(states)} }}")
        self._variables = self._targets = self._base
        # with four bits sometimes too many; once on any way, since bmv2 wants the bytes of the first besides
        octets = self._bits(self._rng.choice((3, 3, 4)), 1)
        extraction = f"packet.extract(hdr.options, (bit<32>) ({octets} ++ 3w0));"
        self._variables = self._targets = [*self._base, KIND]
        lines.append(f"    state options {{ {extraction} {self._select(('right', 'third', 'accept'))} }}")
        self._variables = self._targets = self._base
        skipped = f"packet.advance((bit<32>) ({self._bits(2, 1)} ++ 3w0));" if self._rng.random() < 0.2 else ""
        lines.append(
            f"    state third {{ packet.extract(hdr.third); {skipped} {self._statement()} transition accept; }}"
        )
        self._base = everything
        return "\n".join(lines)

    def _select(self, states: tuple[str, ...], again: str = "") -> str:
        """Make a transition on one or two fields, which probably leads on. `again` is the state itself: another way
        must lead out of it.
        """
        rng = self._rng
        fields = [variable for variable in self._variables if variable[0].startswith("hdr") and not variable[2]]
        keys = rng.sample(fields, min(rng.randrange(1, 3), len(fields)))
        if rng.random() < 0.15:
            width = rng.choice((4, 8, 16))
            keys[-1] = (f"packet.lookahead<bit<{width}>>()", width, False)
        cases = []
        for _ in range(rng.randrange(1, 5)):
            values: list[str] = []
            for _, width, _ in keys:
                value, whole = rng.getrandbits(width), (1 << width) - 1
                masks = (1, whole, whole ^ 1, rng.getrandbits(width))
                if values:
                    values.append(rng.choice((f"{value}", f"{value} &&& {rng.choice((0, *masks))}", "_")))
                else:  # an entry that any key matches becomes a default of p4c, of which bmv2 takes the last
                    values.append(rng.choice((f"{value}", f"{value} &&& {rng.choice(masks) or 1}")))
            cases.append(f"({', '.join(values)}): {rng.choice((*states, again) if again else states)};")
        cases.append(f"default: {rng.choice(states)};")
        return f"transition select({', '.join(name for name, _, _ in keys)}) {{ {' '.join(cases)} }}"

    def _verified(self) -> str:
        if self._rng.random() < 0.7:
            return ""
        error = self._rng.choice(("Odd", "NoMatch", "ParserInvalidArgument"))
        return f"verify({self._truth(1)} || {self._truth(1)}, error.{error});"

    def _checksum(self) -> str:
        """Checksum of whole words, into a field of the first header that has room for it."""
        if self._rng.random() < 0.5:
            return ""
        wide = [(name, width) for name, width, signed in self._headers["first"] if width >= 16 and not signed]
        if not wide:
            return ""
        name, width = self._rng.choice(wide)
        others = [variable for variable in self._headers["first"] if variable[0] != name]
        values = f"{{ {', '.join(self._words(others))} }}"
        field, bits, _ = self._rng.choice([other for other in others if not other[2]] or [(name, width, False)])
        when = self._rng.choice(("true", f"{field} > {self._rng.getrandbits(bits)}"))
        algorithm = self._rng.choice(("csum16", "crc16", "xor16") if width < 32 else ("csum16", "crc16", "crc32"))
        return f"update_checksum({when}, {values}, {name}, HashAlgorithm.{algorithm});"

    def _words(self, variables: list[Variable]) -> list[str]:
        """Fields that are multiples of 16 bits together, with zeros behind them."""
        some = self._rng.sample([(name, width) for name, width, _ in variables], self._rng.randrange(1, 4))
        left = -sum(width for _, width in some) % 16
        return [name for name, _ in some] + [f"{left}w0"] * (left > 0)

    # ---- controls

    def _control(self, prefix: str, tables: int) -> str:
        rng = self._rng
        self._prefix = prefix
        cell = rng.choice(WIDTHS)
        lines = [
            f"    register<bit<{cell}>>({CELLS}) {prefix}_cells;",
            f"    counter({CELLS}, CounterType.packets) {prefix}_count;",
            f"    meter({CELLS}, MeterType.{rng.choice(('packets', 'bytes'))}) {prefix}_meter;",
            f"    bit<{cell}> {prefix}_cell = 0;",
        ]
        self._local: Variable = (f"{prefix}_cell", cell, False)
        actions = [self._action(number) for number in range(3)]
        lines += [text for _, _, text in actions]
        names = []
        for number in range(tables):
            name, text = self._table(number, [(name, widths) for name, widths, _ in actions])
            names.append(name)
            lines.append(text)
        self._variables = self._targets = [*self._base, self._local]
        body = [self._step(name, [name for name, _, _ in actions]) for name in names]
        body += [self._plain() for _ in range(6)]
        body += [self._call(*rng.choice(actions)[:2]) for _ in range(rng.randrange(2))]
        if prefix == "f":
            body.append("if (sm.parser_error == error.Odd) { " + self._statement() + " }")
        if self._copies:
            body.append(self._copied())
        elif rng.random() < 0.1:
            body.append(
                f"if ({self._truth(1)}) {{ truncate(32w{rng.randrange(1, 60)} + (bit<32>) {self._bits(5, 1)}); }}"
            )
        rng.shuffle(body)
        if rng.random() < 0.2:
            body.insert(rng.randrange(len(body)), f"if ({self._truth(1)} && {self._truth(1)}) {{ exit; }}")
        if prefix == "f":
            body.append(f"sm.egress_spec = (bit<9>) ({self._bits(8, 2)} & 7);")
        body.append(f"if ({self._truth(2)} && {self._truth(1)} && {self._truth(1)}) {{ mark_to_drop(sm); }}")
        return "\n".join([*lines, "    apply {", *(f"        {line}" for line in body), "    }"])

    def _call(self, action: str, widths: list[int]) -> str:
        return f"{action}({', '.join(self._bits(width, 2) for width in widths)});"

    def _copied(self) -> str:
        """Statement that copies a received packet, or resubmits it."""
        if self._prefix == "f":
            ways: tuple[str, ...] = (
                f"clone_preserving_field_list(CloneType.I2E, {SESSION}, {KEPT});",
                f"sm.mcast_grp = {GROUP};",
                f"resubmit_preserving_field_list({KEPT});",
            )
        else:
            ways = (
                f"clone_preserving_field_list(CloneType.E2E, {SESSION}, {KEPT});",
                f"{self._local[0]} = {self._local[0]} + (bit<{self._local[1]}>) sm.egress_rid;",
            )
        if self._goes_again and self._prefix == "l":
            again = f"meta.again = 1; recirculate_preserving_field_list({KEPT});"
            return f"if (meta.again == 0 && {self._truth(1)}) {{ {again} }}"
        return f"if (sm.instance_type == 0 && {self._truth(1)}) {{ {self._rng.choice(ways)} }}"

    def _action(self, number: int) -> tuple[str, list[int], str]:
        """(name, widths of the parameters, text)."""
        rng = self._rng
        name = f"{self._prefix}_act{number}"
        params: list[Variable] = [(f"p{i}", rng.choice(WIDTHS), False) for i in range(rng.randrange(3))]
        self._targets = [*self._base, self._local]
        self._variables = [*self._targets, *params]
        body = [self._simple() for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.5:
            body.append(self._access())
        shown = ", ".join(f"bit<{width}> {param}" for param, width, _ in params)
        return name, [width for _, width, _ in params], f"    action {name}({shown}) {{ {' '.join(body)} }}"

    def _table(self, number: int, actions: list[tuple[str, list[int]]]) -> tuple[str, str]:
        rng = self._rng
        name = f"{self._prefix}_table{number}"
        fields = [variable for variable in self._base if not variable[2]]
        keys: list[tuple[str, int, str]] = []
        has_lpm = False
        for field, width, _ in rng.sample(fields, rng.randrange(1, 4)):
            kind = rng.choice(MATCH_KINDS)
            # of a prefix in a field that is no whole number of bytes, bmv2 counts the padding, too
            if (kind == "lpm" and (has_lpm or width % 8)) or (kind == "range" and width > LONGEST_RANGE):
                kind = "exact"
            has_lpm |= kind == "lpm"
            keys.append((field, width, kind))
        match rng.randrange(4):
            case 0:
                more, before = self._own_entries(keys, actions), ""
            case 1:
                more, before = f"counters = {name}_hits;", f"    direct_counter(CounterType.packets) {name}_hits;\n"
            case _:
                more, before = "size = 16;", ""
        return name, (
            f"{before}    table {name} {{ key = {{ {' '.join(f'{field}: {kind};' for field, _, kind in keys)} }}"
            f" actions = {{ {'; '.join(a for a, _ in actions)}; }}"
            f" default_action = {self._called(*rng.choice(actions))}; {more} }}"
        )

    def _called(self, action: str, widths: list[int]) -> str:
        """An action with numbers."""
        return f"{action}({', '.join(str(self._rng.getrandbits(width)) for width in widths)})"

    def _own_entries(self, keys: list[tuple[str, int, str]], actions: list[tuple[str, list[int]]]) -> str:
        """Entries that a table has from its program, none twice."""
        entries = {
            ", ".join(self._key(width, kind) for _, width, kind in keys): self._called(*self._rng.choice(actions))
            for _ in range(self._rng.randrange(1, 6))
        }
        return f"const entries = {{ {' '.join(f'({key}): {action};' for key, action in entries.items())} }}"

    def _key(self, width: int, kind: str) -> str:
        """Key of an entry for a field: mostly small."""
        value, whole = self._rng.getrandbits(self._rng.choice((min(width, 3), width))), (1 << width) - 1
        match kind:
            case "lpm":
                mask = whole ^ whole >> self._rng.randrange(width + 1)
                mask = mask if width <= LONGEST_LPM else whole
            case "ternary":
                mask = self._rng.choice((whole, whole ^ 1, self._rng.getrandbits(width)))
            case "range":
                return f"{value} .. {self._rng.randrange(value, whole + 1)}"
            case _:
                return f"{value}"
        return f"{value & mask} &&& {mask}" if mask else "_"

    def _step(self, table: str, actions: list[str]) -> str:
        """Apply a table, and branch on what it did."""
        match self._rng.randrange(4):
            case 0:
                return f"if ({table}.apply().hit) {{ {self._plain()} }} else {{ {self._plain()} }}"
            case 1:
                first, second, *_ = self._rng.sample(actions, 3)
                return (
                    f"switch ({table}.apply().action_run) {{ {first}: {{ {self._plain()} }} "
                    f"{second}: {{ {self._plain()} }} default: {{ {self._plain()} }} }}"
                )
            case 2:
                return f"if ({self._truth(1)}) {{ {table}.apply(); }}"
        return f"{table}.apply();"

    def _plain(self) -> str:
        """A statement of a control's body without tables."""
        match self._rng.randrange(8):
            case 0:
                return self._access()
            case 1:
                return self._with_header(self._rng.choice(("second", "third", "either.left", "either.right")))
            case 2:
                return self._with_stack()
            case 3:
                return self._rng.choice((self._with_union, self._with_options, self._by_value))()
        return self._statement()

    def _by_value(self) -> str:
        """A branch by an expression's value."""
        width = self._rng.choice(WIDTHS)
        labels = {self._rng.choice((self._rng.getrandbits(width), index)) & (1 << width) - 1 for index in range(3)}
        cases = " ".join(f"{label}: {{ {self._statement()} }}" for label in sorted(labels))
        return f"switch ({self._bits(width, 1)}) {{ {cases} default: {{ {self._statement()} }} }}"

    def _simple(self) -> str:
        """An assignment without a condition, as actions may have them."""
        name, width, signed = self._rng.choice(self._targets)
        return f"{name} = {self._signed(width, DEPTH - 2) if signed else self._bits(width, DEPTH - 1)};"

    def _access(self) -> str:
        index = f"(bit<32>) ({self._bits(8, 1)} & {CELLS - 1})"
        name, width, _ = self._local
        least, most = self._rng.randrange(4), self._rng.choice((1, 7, 8, 255, 65_536))
        values = f"{{ {', '.join(self._words([*self._base, self._local]))} }}"
        hashed = (
            f"bit<32> hashed; hash(hashed, HashAlgorithm.{self._rng.choice(HASHES)}, 32w{least}, {values}, 32w{most});"
        )
        kinds = [
            f"{self._prefix}_count.count({index});",
            f"{{ {hashed} {name} = (bit<{width}>) hashed; }}",
        ]
        if not (self._goes_again if self._prefix == "f" else self._copies):
            kinds += [
                f"{self._prefix}_meter.execute_meter({index}, {name});",
                f"{self._prefix}_cells.read({name}, {index});",
                f"{self._prefix}_cells.write({index}, {self._bits(width, 2)});",
            ]
        return self._rng.choice(kinds)

    def _with_header(self, header: str) -> str:
        """Statement about a header that may be invalid; added headers are written whole."""
        fields = self._headers[header]
        if self._rng.random() < 0.3:
            text = f"hdr.{header}.setInvalid();"
        elif self._rng.random() < 0.5:
            written = [
                f"{name} = {self._signed(width, 1) if signed else self._bits(width, 1)};"
                for name, width, signed in fields
            ]
            text = f"hdr.{header}.setValid(); {' '.join(written)}"
        else:
            return f"if (hdr.{header}.isValid()) {{ {self._among(fields, 2)} }}"
        return f"if ({self._truth(1)}) {{ {text} }}"

    def _among(self, fields: list[Variable], statements: int) -> str:
        """Make this many statements that may also read and write these fields."""
        before = self._variables, self._targets
        self._variables, self._targets = ([*names, *fields] for names in before)
        text = " ".join(self._statement() for _ in range(statements))
        self._variables, self._targets = before
        return text

    def _with_union(self) -> str:
        """Something about the union as a whole."""
        return self._rng.choice(
            (
                f"if (hdr.either.isValid()) {{ {self._statement()} }}",
                f"if (hdr.other.isValid()) {{ {self._statement()} }} else {{ {self._statement()} }}",
                "hdr.other = hdr.either;",
                f"if ({self._truth(1)}) {{ hdr.either = hdr.other; }}",
            )
        )

    def _with_options(self) -> str:
        """Something about the header that varies in length, which is not added: P4 leaves open how long it were."""
        inside = self._among([KIND], 1)
        same = "hdr.options.isValid() && hdr.spare.isValid() && hdr.options.data == hdr.spare.data"
        return self._rng.choice(
            (
                f"if (hdr.options.isValid()) {{ {inside} }}",
                "hdr.spare = hdr.options;",
                f"if ({self._truth(1)}) {{ hdr.options = hdr.spare; }}",
                f"if ({self._truth(1)}) {{ hdr.options.setInvalid(); }}",
                f"if ({same}) {{ {self._statement()} }}",
            )
        )

    def _element(self, which: str) -> list[Variable]:
        """The fields of an element of the stack: `last`, `[0]`."""
        part = which if which.startswith("[") else f".{which}"
        return [(f"hdr.tags{part}.{_short(name)}", width, signed) for name, width, signed in self._headers["tags"]]

    def _with_stack(self) -> str:
        """Statement about the header stack; pushed headers are written whole."""
        at = self._rng.randrange(TAGS)
        match self._rng.randrange(4):
            case 0:
                text = f"hdr.tags.pop_front({self._rng.randrange(1, TAGS + 1)});"
            case 1:
                count = self._rng.randrange(1, TAGS + 1)
                text = f"hdr.tags.push_front({count}); " + " ".join(map(self._fill, range(count)))
            case 2:
                text = self._fill(at) if self._rng.random() < 0.5 else f"hdr.tags[{at}].setInvalid();"
            case _:
                return f"if (hdr.tags[{at}].isValid()) {{ {self._among(self._element(f'[{at}]'), 2)} }}"
        return f"if ({self._truth(1)}) {{ {text} }}"

    def _fill(self, at: int) -> str:
        written = [
            f"{name} = {self._signed(width, 1) if signed else self._bits(width, 1)};"
            for name, width, signed in self._element(f"[{at}]")
        ]
        return f"hdr.tags[{at}].setValid(); {' '.join(written)}"


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]
