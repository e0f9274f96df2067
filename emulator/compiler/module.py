"""The whole program as one LLVM module, optimised for this machine and turned into object code."""

from __future__ import annotations

from typing import Final

import llvmlite.binding as llvm
from llvmlite import ir

from ...machine_code.interruption import check
from ...machine_code.link import host_machine
from ..abi import PACKET, InstanceType
from ..bmv2.document import Checksum, Document
from .actions import emit_primitive
from .control import emit_control
from .deparser import emit_deparser
from .digests import emit_digests
from .expressions import Expressions
from .frame import I64, PTR, VOID, Frame, IRValue, const, fit
from .hashing import compute
from .layout import Layout
from .parser import emit_parser

_ONE_THREAD: Final = "singlethread"


def compile_program(document: Document, layout: Layout) -> bytes:
    """Return the object code with the entry points of `emulator.abi` for the host's processor.

    Raises `UnsupportedProgram`.
    """
    check()
    module, machine = build_module(document, layout), host_machine()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    check()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.slp_vectorization = True
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    check()
    builder.getModulePassManager().run(parsed, builder)
    check()
    return bytes(machine.emit_object(parsed))


def build_module(document: Document, layout: Layout) -> IRValue:
    """Return the program in LLVM's intermediate representation, not yet optimised."""
    module = ir.Module(document.name)
    _ingress(document, layout, module)
    _egress(document, layout, module)
    if document.clones_in_egress:
        _deparse(document, layout, module)
    _reparse(document, layout, module)
    _preserve(document, layout, module)
    return module


def _ingress(document: Document, layout: Layout, module: IRValue) -> None:
    frame = Frame.open(document, layout, module, "ingress.body")
    _clear(frame)
    frame.store_packet("checksum_error", const(8, 0))
    emit_parser(frame)
    for checksum in document.checksums:
        if checksum.verify:
            _verify(frame, checksum)
    emit_control(frame, document.ingress)
    emit_digests(frame)
    frame.settle_length(frame.load_packet("length"))
    _finish(frame, "ingress")


def _egress(document: Document, layout: Layout, module: IRValue) -> None:
    frame = Frame.open(document, layout, module, "egress.body")
    length = frame.load_packet("packet_length")
    emit_control(frame, document.egress)
    frame.settle_length(length)
    if document.clones_in_egress:
        cloned, alone = frame.block("cloned"), frame.block("alone")
        asked = frame.builder.icmp_unsigned("!=", frame.load_packet("clone_session"), const(32, 0))
        frame.builder.cbranch(asked, cloned, alone)
        frame.builder.position_at_end(cloned)
        frame.builder.ret_void()
        frame.builder.position_at_end(alone)
    _send(frame)
    _finish(frame, "egress")


def _deparse(document: Document, layout: Layout, module: IRValue) -> None:
    frame = Frame.open(document, layout, module, "deparse.body")
    _send(frame)
    _finish(frame, "deparse")


def _send(frame: Frame) -> None:
    """Emit the code behind the egress control for a packet that is not dropped."""
    document = frame.document
    sent, dropped = frame.block("sent"), frame.block("dropped")
    spec = frame.load_packet("egress_spec")
    frame.builder.cbranch(frame.builder.icmp_unsigned("==", spec, frame.load_packet("drop_port")), dropped, sent)
    frame.builder.position_at_end(dropped)
    frame.builder.ret_void()
    frame.builder.position_at_end(sent)
    for checksum in document.checksums:
        if checksum.update:
            _update(frame, checksum)
    for call in document.deparser_calls:
        emit_primitive(frame, call)
    emit_deparser(frame)


def _reparse(document: Document, layout: Layout, module: IRValue) -> None:
    frame = Frame.open(document, layout, module, "reparse.body")
    frame.zero(frame.phv, layout.zeroed_bytes)
    emit_parser(frame)
    frame.settle_length(frame.load_packet("length"))
    start, length = layout.scalars
    frame.zero(frame.at(frame.phv, start), length)  # the clone does not inherit metadata that the parser assigned
    _finish(frame, "reparse")


def _finish(frame: Frame, name: str) -> None:
    """End the body and add the exported function, which knows where the PHV and the data area lie."""
    frame.builder.ret_void()
    frame.close()
    function = ir.Function(frame.module, ir.FunctionType(VOID, [PTR, PTR]), name)
    function.attributes.add("nounwind")
    state, packet = function.args
    outer = ir.IRBuilder(function.append_basic_block("entry"))
    phv = phv_of(outer, packet)
    data = outer.gep(packet, [const(64, PACKET.itemsize + frame.layout.phv_bytes)], source_etype=ir.IntType(8))
    # The code that frees memory reads from this count whether a packet is inside. The fences keep the optimiser from
    # moving the packet's reads out of the count. They cost no instruction: freeing waits longer than a store takes to
    # reach other cores (`emulator.tables.memory`).
    passing = outer.load(state, typ=I64, align=8)
    outer.store(outer.add(passing, const(64, 1)), state, align=8)
    outer.fence("seq_cst", _ONE_THREAD)
    outer.call(frame.function, [state, packet, phv, data])
    outer.fence("seq_cst", _ONE_THREAD)
    outer.store(outer.add(passing, const(64, 2)), state, align=8)
    outer.ret_void()


def _clear(frame: Frame) -> None:
    """Begin without headers and metadata; but a packet that comes again has the metadata that it was to keep."""
    layout, builder = frame.layout, frame.builder
    start, length = layout.scalars
    ops = {primitive.op for action in frame.document.actions.values() for primitive in action.body}
    if not length or not ops & {"resubmit", "recirculate"}:
        frame.zero(frame.phv, layout.zeroed_bytes)
        return
    frame.zero(frame.phv, start)
    frame.zero(frame.at(frame.phv, start + length), layout.zeroed_bytes - start - length)
    fresh, after = frame.block("fresh"), frame.block("not_fresh")
    kind = frame.load_packet("instance_type")
    builder.cbranch(builder.icmp_unsigned("==", kind, const(32, InstanceType.NORMAL)), fresh, after)
    builder.position_at_end(fresh)
    frame.zero(frame.at(frame.phv, start), length)
    builder.branch(after)
    builder.position_at_end(after)


def _preserve(document: Document, layout: Layout, module: IRValue) -> None:
    """`preserve` of `emulator.abi`."""
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR]), "preserve")
    function.attributes.add("nounwind")
    entry, body = function.append_basic_block("entry"), function.append_basic_block("body")
    builder = ir.IRBuilder(body)
    metadata = frozenset(header.name for header in document.headers.values() if header.metadata)
    source, target = (
        Frame(
            document,
            layout,
            module,
            function,
            builder,
            None,
            packet,
            phv_of(builder, packet),
            None,
            entry,
            {},
            metadata,
        )
        for packet in function.args
    )
    start, length = layout.scalars
    if length:
        target.zero(target.at(target.phv, start), length)
    done = target.block("done")
    switch = builder.switch(target.load_packet("clone_field_list"), done)
    for number, fields in document.field_lists.items():
        block = target.block(f"list.{number}")
        switch.add_case(const(32, number), block)
        builder.position_at_end(block)
        for field in fields:
            if field.header in metadata:
                target.store(field, source.load(field))
        builder.branch(done)
    builder.position_at_end(done)
    builder.ret_void()
    target.close()


def phv_of(builder: IRValue, packet: IRValue) -> IRValue:
    """Return the address of the PHV behind a packet's record."""
    return builder.gep(packet, [const(64, PACKET.itemsize)], source_etype=ir.IntType(8))


def _verify(frame: Frame, checksum: Checksum) -> None:
    after = _when(frame, checksum)
    width = frame.width(checksum.target)
    computed = fit(frame.builder, compute(frame, frame.document.calculations[checksum.calculation]), width)
    wrong = frame.builder.icmp_unsigned("!=", computed, frame.load(checksum.target))
    old = frame.load_packet("checksum_error", 8)
    frame.store_packet("checksum_error", frame.builder.or_(old, fit(frame.builder, wrong, 8)))
    frame.builder.branch(after)
    frame.builder.position_at_end(after)


def _update(frame: Frame, checksum: Checksum) -> None:
    after = _when(frame, checksum)
    computed = compute(frame, frame.document.calculations[checksum.calculation])
    frame.store(checksum.target, fit(frame.builder, computed, frame.width(checksum.target)))
    frame.builder.branch(after)
    frame.builder.position_at_end(after)


def _when(frame: Frame, checksum: Checksum) -> IRValue:
    """Begin the block that runs if the checksum's condition holds; returns the one behind it."""
    then, after = frame.block("checksum"), frame.block("checksum.done")
    if checksum.condition is None:
        frame.builder.branch(then)
    else:
        frame.builder.cbranch(Expressions(frame, checksum.where).truth(checksum.condition), then, after)
    frame.builder.position_at_end(then)
    return after
