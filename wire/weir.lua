--[[
Wireshark dissectors for what Weir puts on links (docs/design.md §2.2, §2.5, §4.4, §4.5). `make wireshark` says how to install.

  weir_agg      aggregation messages, UDP port 22341
  weir_p2p      the transport between two hosts, UDP port 22346
  weir_int      INT 2.1: shim, MD or MX header, stack; over UDP and TCP, by each of the three marks:
                  UDP port 5000     the shim begins the payload
                  DSCP bit 0x01     the shim follows UDP, or the 20 bytes that each TCP header has
                  probe marker      64 bits stand before the shim, in the same places
  weir_report   telemetry reports 2.0, UDP port 22343; the reported packet is dissected as well

Over TCP, INT stands in front of TCP's options, so Wireshark's own lines for those are wrong in such packets; what is
shown as INT is right.
]]

local AGGREGATION_PORT, PROBE_PORT, INT_PORT, REPORT_PORT = 22341, 22342, 5000, 22343
local DOMAIN = 0x5745
local MARKER = "576569722d494e54"
local PLAIN_TCP = 20

local agg = Proto("weir_agg", "Weir aggregation")
local int = Proto("weir_int", "In-band Network Telemetry")
local report = Proto("weir_report", "INT telemetry report")

-- ---- aggregation messages ----

local MESSAGE_TYPES = {
    [1] = "CONTRIBUTION", [2] = "RESULT", [3] = "SCALE", [4] = "SCALE_RESULT", [5] = "FETCH", [6] = "FETCHED",
    [7] = "SCALE_FETCHED", [8] = "PRESENT", [9] = "DONE",
}
local CARRIES_LANES = { [1] = true, [2] = true, [6] = true }

local a = {
    version = ProtoField.uint8("weir_agg.version", "Version", base.DEC, nil, 0xF0),
    type = ProtoField.uint8("weir_agg.type", "Type", base.DEC, MESSAGE_TYPES, 0x0F),
    flags = ProtoField.uint8("weir_agg.flags", "Flags", base.HEX),
    congestion = ProtoField.bool("weir_agg.flags.congestion", "Congestion seen", 8, nil, 0x01),
    retransmission = ProtoField.bool("weir_agg.flags.retransmission", "Retransmission", 8, nil, 0x02),
    lanes_added = ProtoField.bool("weir_agg.flags.lanes", "Lanes added", 8, nil, 0x04),
    lanes_wanted = ProtoField.bool("weir_agg.flags.wanted", "Lanes wanted", 8, nil, 0x08),
    job = ProtoField.uint16("weir_agg.job", "Job"),
    generation = ProtoField.uint32("weir_agg.generation", "Generation", base.DEC, nil, 0xFF000000),
    chunk = ProtoField.uint32("weir_agg.chunk", "Chunk", base.DEC, nil, 0x00FFFFFF),
    contributors = ProtoField.uint32("weir_agg.contributors", "Contributors", base.HEX),
    slot = ProtoField.uint16("weir_agg.slot", "Slot"),
    window = ProtoField.uint16("weir_agg.window", "Window"),
    exponent = ProtoField.uint8("weir_agg.exponent", "Exponent"),
    reserved = ProtoField.uint8("weir_agg.reserved", "Reserved"),
    checksum = ProtoField.uint16("weir_agg.checksum", "Checksum", base.HEX),
    weight = ProtoField.uint32("weir_agg.weight", "Weight"),
    check = ProtoField.uint32("weir_agg.check", "Check", base.HEX),
    lanes = ProtoField.uint16("weir_agg.lanes", "Lanes"),
    lane = ProtoField.int32("weir_agg.lane", "Lane"),
}
agg.fields = a

function agg.dissector(buffer, packet, tree)
    if buffer:len() < 28 then
        return 0
    end
    packet.cols.protocol = "WEIR"
    local kind = buffer(0, 1):bitfield(4, 4)
    local top = tree:add(agg, buffer(), "Weir aggregation")
    top:add(a.version, buffer(0, 1))
    top:add(a.type, buffer(0, 1))
    local flags = top:add(a.flags, buffer(1, 1))
    flags:add(a.congestion, buffer(1, 1))
    flags:add(a.retransmission, buffer(1, 1))
    flags:add(a.lanes_added, buffer(1, 1))
    flags:add(a.lanes_wanted, buffer(1, 1))
    top:add(a.job, buffer(2, 2))
    top:add(a.generation, buffer(4, 4))
    top:add(a.chunk, buffer(4, 4))
    top:add(a.contributors, buffer(8, 4))
    top:add(a.slot, buffer(12, 2))
    top:add(a.window, buffer(14, 2))
    top:add(a.exponent, buffer(16, 1))
    top:add(a.reserved, buffer(17, 1))
    top:add(a.checksum, buffer(18, 2))
    top:add(a.weight, buffer(20, 4))
    top:add(a.check, buffer(24, 4))
    local count = 0
    if CARRIES_LANES[kind] then
        count = math.floor((buffer:len() - 28) / 4)
        local lanes = top:add(a.lanes, buffer(28, 4 * count), count)
        for lane = 0, count - 1 do
            lanes:add(a.lane, buffer(28 + 4 * lane, 4))
        end
    end
    packet.cols.info = string.format(
        "%s job %d generation %d chunk %d slot %d", MESSAGE_TYPES[kind] or "unknown type", buffer(2, 2):uint(),
        buffer(4, 1):uint(), buffer(5, 3):uint(), buffer(12, 2):uint())
    return buffer:len()
end

DissectorTable.get("udp.port"):add(AGGREGATION_PORT, agg)

-- ---- the transport between two hosts ----

local TRANSPORT_PORT = 22346
local PACKET_TYPES = { [1] = "DATA", [2] = "ACK", [3] = "OPEN", [4] = "OPENED" }
local p2p = Proto("weir_p2p", "Weir transport")
local t = {
    version = ProtoField.uint8("weir_p2p.version", "Version", base.DEC, nil, 0xF0),
    type = ProtoField.uint8("weir_p2p.type", "Type", base.DEC, PACKET_TYPES, 0x0F),
    flags = ProtoField.uint8("weir_p2p.flags", "Flags", base.HEX),
    job = ProtoField.uint16("weir_p2p.job", "Job"),
    epoch = ProtoField.uint32("weir_p2p.epoch", "Epoch", base.HEX),
    peer_epoch = ProtoField.uint32("weir_p2p.peer_epoch", "Peer's epoch", base.HEX),
    sequence = ProtoField.uint32("weir_p2p.sequence", "Sequence"),
    order = ProtoField.uint32("weir_p2p.order", "Order of transmission"),
    check = ProtoField.uint64("weir_p2p.check", "Check", base.HEX),
    payload = ProtoField.bytes("weir_p2p.payload", "Payload"),
}
p2p.fields = t

function p2p.dissector(buffer, packet, tree)
    if buffer:len() < 28 then
        return 0
    end
    packet.cols.protocol = "WEIR"
    local top = tree:add(p2p, buffer(), "Weir transport")
    top:add(t.version, buffer(0, 1))
    top:add(t.type, buffer(0, 1))
    top:add(t.flags, buffer(1, 1))
    top:add(t.job, buffer(2, 2))
    top:add(t.epoch, buffer(4, 4))
    top:add(t.peer_epoch, buffer(8, 4))
    top:add(t.sequence, buffer(12, 4))
    top:add(t.order, buffer(16, 4))
    top:add(t.check, buffer(20, 8))
    if buffer:len() > 28 then
        top:add(t.payload, buffer(28))
    end
    packet.cols.info = string.format("%s job %d sequence %d", PACKET_TYPES[buffer(0, 1):bitfield(4, 4)] or "unknown type",
        buffer(2, 2):uint(), buffer(12, 4):uint())
    return buffer:len()
end

DissectorTable.get("udp.port"):add(TRANSPORT_PORT, p2p)

-- ---- metadata, as stacks and reports have it ----

local m = {
    node = ProtoField.uint32("weir_int.node", "Node id"),
    ingress_port = ProtoField.uint16("weir_int.ingress_port", "Ingress port"),
    egress_port = ProtoField.uint16("weir_int.egress_port", "Egress port"),
    latency = ProtoField.uint32("weir_int.latency_us", "Hop latency (µs)"),
    queue_id = ProtoField.uint8("weir_int.queue_id", "Queue id"),
    queue = ProtoField.uint24("weir_int.queue_packets", "Queue occupancy (packets)"),
    ingress_time = ProtoField.uint64("weir_int.ingress_ns", "Ingress timestamp (ns)"),
    egress_time = ProtoField.uint64("weir_int.egress_ns", "Egress timestamp (ns)"),
    ingress_interface = ProtoField.uint32("weir_int.ingress_interface", "Ingress interface (level 2)"),
    egress_interface = ProtoField.uint32("weir_int.egress_interface", "Egress interface (level 2)"),
    utilisation = ProtoField.uint32("weir_int.utilisation", "Utilisation (bytes in the last window)"),
    buffer_id = ProtoField.uint8("weir_int.buffer_id", "Buffer id"),
    buffer_occupancy = ProtoField.uint24("weir_int.buffer_occupancy", "Buffer occupancy"),
    complement = ProtoField.uint32("weir_int.complement", "Checksum complement", base.HEX),
    drop_queue = ProtoField.uint8("weir_int.drop_queue_id", "Queue id of the drop"),
    drop_reason = ProtoField.uint8("weir_int.drop_reason", "Drop reason", base.DEC, {
        [0] = "truncated", [1] = "malformed", [2] = "bad_checksum", [3] = "not_ipv4", [4] = "ttl_expired",
        [5] = "no_route", [6] = "no_service", [7] = "unknown_job", [8] = "not_member", [9] = "not_parent",
        [10] = "bad_slot", [11] = "duplicate", [12] = "late", [13] = "policed", [14] = "foreign_source",
        [15] = "foreign_type", [16] = "foreign_port", [17] = "out_of_window",
    }),
    bytes_sent = ProtoField.uint64("weir_int.bytes_sent", "Bytes sent by the egress port before"),
    free_slots = ProtoField.uint32("weir_int.free_slots", "Free aggregation slots"),
    packet_number = ProtoField.uint32("weir_int.packet_number", "Packet number of the sink"),
    reserved = ProtoField.uint32("weir_int.reserved_metadata", "Reserved", base.HEX),
}

-- by bit of the bitmap, the most significant first: its fields with their bytes; what is missing is reserved, one word
local BASELINE = {
    [0] = { { m.node, 4 } },
    [1] = { { m.ingress_port, 2 }, { m.egress_port, 2 } },
    [2] = { { m.latency, 4 } },
    [3] = { { m.queue_id, 1 }, { m.queue, 3 } },
    [4] = { { m.ingress_time, 8 } },
    [5] = { { m.egress_time, 8 } },
    [6] = { { m.ingress_interface, 4 }, { m.egress_interface, 4 } },
    [7] = { { m.utilisation, 4 } },
    [8] = { { m.buffer_id, 1 }, { m.buffer_occupancy, 3 } },
}
local OF_DOMAIN = {
    [0] = { { m.bytes_sent, 8 } },
    [1] = { { m.free_slots, 4 } },
    [2] = { { m.packet_number, 4 } },
}
local RESERVED = { { m.reserved, 4 } }
local COMPLEMENT = { { m.complement, 4 } }
local DROP = { { m.drop_queue, 1 }, { m.drop_reason, 1 }, { m.reserved, 2 } }

local function is_set(bitmap, bit)
    return math.floor(bitmap / 2 ^ (15 - bit)) % 2 == 1
end

-- Adds the items of these bits in their order; where they end. `first` and `last` are the baseline's bits to be looked at.
local function add_items(tree, buffer, at, bitmap, items, first, last)
    for bit = first, last do
        if is_set(bitmap, bit) then
            for _, item in ipairs(items[bit] or RESERVED) do
                if at + item[2] > buffer:len() then
                    return at
                end
                if item[1] ~= m.reserved or item[2] == 4 then
                    tree:add(item[1], buffer(at, item[2]))
                end
                at = at + item[2]
            end
        end
    end
    return at
end

-- ---- INT ----

local SHIM_TYPES = { [1] = "INT-MD", [2] = "Destination", [3] = "INT-MX" }
local f = {
    marker = ProtoField.uint64("weir_int.marker", "Probe marker", base.HEX),
    type = ProtoField.uint8("weir_int.shim.type", "Type", base.DEC, SHIM_TYPES, 0xF0),
    npt = ProtoField.uint8("weir_int.shim.npt", "Next protocol type", base.DEC, {
        [0] = "unchanged", [1] = "original UDP port", [2] = "original protocol behind a UDP header of INT's own",
    }, 0x0C),
    length = ProtoField.uint8("weir_int.shim.length", "Words behind the shim"),
    original_dscp = ProtoField.uint8("weir_int.shim.dscp", "Original DSCP", base.DEC, nil, 0xFC),
    original_port = ProtoField.uint16("weir_int.shim.port", "Original UDP destination port"),
    original_protocol = ProtoField.uint8("weir_int.shim.protocol", "Original IP protocol"),
    version = ProtoField.uint8("weir_int.version", "Version", base.DEC, nil, 0xF0),
    discard = ProtoField.bool("weir_int.discard", "D: the sink discards", 8, nil, 0x08),
    hops_exceeded = ProtoField.bool("weir_int.hops_exceeded", "E: no hops were left", 8, nil, 0x04),
    mtu_exceeded = ProtoField.bool("weir_int.mtu_exceeded", "M: the MTU left no room", 8, nil, 0x02),
    hop_words = ProtoField.uint8("weir_int.hop_words", "Hop ML", base.DEC, nil, 0x1F),
    remaining = ProtoField.uint8("weir_int.remaining_hops", "Remaining hop count"),
    instructions = ProtoField.uint16("weir_int.instructions", "Instruction bitmap", base.HEX),
    domain = ProtoField.uint16("weir_int.domain", "Domain specific id", base.HEX),
    domain_instructions = ProtoField.uint16("weir_int.domain_instructions", "DS instructions", base.HEX),
    domain_flags = ProtoField.uint16("weir_int.domain_flags", "DS flags", base.HEX),
    hops = ProtoField.uint8("weir_int.hops", "Hops"),
    hop = ProtoField.bytes("weir_int.hop", "Hop"),
}
for name, field in pairs(m) do
    f["item_" .. name] = field
end
int.fields = f

-- Shim, header and stack at this place; how many bytes they are, 0: there are none.
local function add_int(buffer, at, packet, tree)
    if at + 16 > buffer:len() then
        return 0
    end
    local kind, npt = buffer(at, 1):bitfield(0, 4), buffer(at, 1):bitfield(4, 2)
    local bytes = 4 + 4 * buffer(at + 1, 1):uint()
    if (kind ~= 1 and kind ~= 3) or buffer(at + 4, 1):bitfield(0, 4) ~= 2 or bytes < 16 or at + bytes > buffer:len() then
        return 0
    end
    local top = tree:add(int, buffer(at, bytes), SHIM_TYPES[kind])
    local shim = top:add(int, buffer(at, 4), "Shim")
    shim:add(f.type, buffer(at, 1))
    shim:add(f.npt, buffer(at, 1))
    shim:add(f.length, buffer(at + 1, 1))
    if npt == 0 then
        shim:add(f.original_dscp, buffer(at + 3, 1))
    elseif npt == 1 then
        shim:add(f.original_port, buffer(at + 2, 2))
    else
        shim:add(f.original_protocol, buffer(at + 3, 1))
    end
    local header = top:add(int, buffer(at + 4, 12), "Header")
    header:add(f.version, buffer(at + 4, 1))
    header:add(f.discard, buffer(at + 4, 1))
    local words = 0
    if kind == 1 then
        header:add(f.hops_exceeded, buffer(at + 4, 1))
        header:add(f.mtu_exceeded, buffer(at + 4, 1))
        header:add(f.hop_words, buffer(at + 6, 1))
        header:add(f.remaining, buffer(at + 7, 1))
        words = buffer(at + 6, 1):bitfield(3, 5)
    end
    header:add(f.instructions, buffer(at + 8, 2))
    header:add(f.domain, buffer(at + 10, 2))
    header:add(f.domain_instructions, buffer(at + 12, 2))
    header:add(f.domain_flags, buffer(at + 14, 2))
    local bitmap, ours = buffer(at + 8, 2):uint(), buffer(at + 10, 2):uint() == DOMAIN
    local domain_bitmap = ours and buffer(at + 12, 2):uint() or 0
    local hops = words > 0 and math.floor((bytes - 16) / (4 * words)) or 0
    header:add(f.hops, hops):set_generated()
    for hop = 0, hops - 1 do
        local from = at + 16 + 4 * words * hop
        local below = top:add(f.hop, buffer(from, 4 * words))
        below:set_text(string.format("Hop %d, %s", hops - hop, hop == 0 and "the newest" or "before"))
        from = add_items(below, buffer, from, bitmap, BASELINE, 0, 14)
        from = add_items(below, buffer, from, domain_bitmap, OF_DOMAIN, 0, 15)
        if is_set(bitmap, 15) then
            add_items(below, buffer, from, bitmap, { [15] = COMPLEMENT }, 15, 15)
        end
    end
    packet.cols.info:append(string.format(" [%s, %d hops]", SHIM_TYPES[kind], hops))
    return bytes
end

-- UDP to INT's port: the shim, then what it was put in front of.
function int.dissector(buffer, packet, tree)
    local bytes = add_int(buffer, 0, packet, tree)
    if bytes == 0 then
        return 0
    end
    packet.cols.protocol = "INT"
    local npt = buffer(0, 1):bitfield(4, 2)
    if bytes < buffer:len() then
        local rest = buffer(bytes):tvb()
        if npt == 1 then
            local port = buffer(2, 2):uint()
            local known = DissectorTable.get("udp.port"):get_dissector(port)
            (known and port ~= INT_PORT and known or Dissector.get("data")):call(rest, packet, tree)
        elseif npt == 2 and buffer(3, 1):uint() == 6 then
            Dissector.get("tcp"):call(rest, packet, tree)
        else
            Dissector.get("data"):call(rest, packet, tree)
        end
    end
    return buffer:len()
end

DissectorTable.get("udp.port"):add(INT_PORT, int)

-- The other two marks, once the packet has been dissected as what it was without INT.
local marked = Proto("weir_int_marked", "INT by DSCP or probe marker")
local ip_header, ip_dscp, ip_protocol, udp_port =
    Field.new("ip.hdr_len"), Field.new("ip.dsfield.dscp"), Field.new("ip.proto"), Field.new("udp.dstport")

function marked.dissector(buffer, packet, tree)
    local length, dscp, protocol, port = ip_header(), ip_dscp(), ip_protocol(), udp_port()
    if not (length and dscp and protocol) or (port and (port.value == INT_PORT or port.value == REPORT_PORT)) then
        return
    end
    local at = length.offset + length.value
    if protocol.value == 17 then
        at = at + 8
    elseif protocol.value == 6 then
        at = at + PLAIN_TCP
    else
        return
    end
    if at + 8 < buffer:len() and buffer(at, 8):bytes():tohex(true) == MARKER then
        tree:add(f.marker, buffer(at, 8))
        add_int(buffer, at + 8, packet, tree)
    elseif dscp.value % 2 == 1 then
        add_int(buffer, at, packet, tree)
    end
end

register_postdissector(marked)

-- ---- telemetry reports ----

local r = {
    version = ProtoField.uint32("weir_report.version", "Version", base.DEC, nil, 0xF0000000),
    hardware = ProtoField.uint32("weir_report.hardware_id", "Hardware id", base.DEC, nil, 0x0FC00000),
    sequence = ProtoField.uint32("weir_report.sequence", "Sequence number", base.DEC, nil, 0x003FFFFF),
    node = ProtoField.uint32("weir_report.node", "Node id"),
    type = ProtoField.uint8("weir_report.type", "Report type", base.DEC, {
        [0] = "inner only", [1] = "INT", [2] = "IOAM",
    }, 0xF0),
    inner = ProtoField.uint8("weir_report.inner_type", "Inner type", base.DEC, {
        [0] = "none", [1] = "TLV", [2] = "domain", [3] = "Ethernet", [4] = "IPv4", [5] = "IPv6",
    }, 0x0F),
    length = ProtoField.uint8("weir_report.length", "Report length (words)"),
    metadata = ProtoField.uint8("weir_report.metadata_length", "Metadata length (words)"),
    dropped = ProtoField.bool("weir_report.dropped", "D: dropped", 8, nil, 0x80),
    queue = ProtoField.bool("weir_report.congested", "Q: congested queue", 8, nil, 0x40),
    flow = ProtoField.bool("weir_report.flow", "F: tracked flow", 8, nil, 0x20),
    intermediate = ProtoField.bool("weir_report.intermediate", "I: intermediate", 8, nil, 0x10),
    bits = ProtoField.uint16("weir_report.metadata_bits", "RepMdBits", base.HEX),
    domain = ProtoField.uint16("weir_report.domain", "Domain specific id", base.HEX),
    domain_bits = ProtoField.uint16("weir_report.domain_bits", "DSMdBits", base.HEX),
    domain_status = ProtoField.uint16("weir_report.domain_status", "DSMdstatus", base.HEX),
}
report.fields = r

-- One individual report; where it ends.
local function add_report(buffer, at, packet, tree)
    local words = buffer(at + 1, 1):uint()
    local stop = words == 0xFF and buffer:len() or at + 4 + 4 * words
    stop = math.min(stop, buffer:len())
    local kind, inner = buffer(at, 1):bitfield(0, 4), buffer(at, 1):bitfield(4, 4)
    local below = tree:add(report, buffer(at, stop - at), "Individual report")
    below:add(r.type, buffer(at, 1))
    below:add(r.inner, buffer(at, 1))
    below:add(r.length, buffer(at + 1, 1))
    below:add(r.metadata, buffer(at + 2, 1))
    for _, flag in ipairs({ r.dropped, r.queue, r.flow, r.intermediate }) do
        below:add(flag, buffer(at + 3, 1))
    end
    local from = at + 4
    if kind == 1 and from + 8 <= stop then
        below:add(r.bits, buffer(from, 2))
        below:add(r.domain, buffer(from + 2, 2))
        below:add(r.domain_bits, buffer(from + 4, 2))
        below:add(r.domain_status, buffer(from + 6, 2))
        local bitmap, domain_bitmap = buffer(from, 2):uint(), 0
        if buffer(from + 2, 2):uint() == DOMAIN then
            domain_bitmap = buffer(from + 4, 2):uint()
        end
        from = from + 8
        local behind = from + 4 * buffer(at + 2, 1):uint()
        local items = add_items(below, buffer, from, bitmap, BASELINE, 1, 14)
        if is_set(bitmap, 15) then
            items = add_items(below, buffer, items, bitmap, { [15] = DROP }, 15, 15)
        end
        add_items(below, buffer, items, domain_bitmap, OF_DOMAIN, 0, 15)
        from = behind
    end
    if from < stop and (inner == 3 or inner == 4) then
        Dissector.get(inner == 4 and "ip" or "eth_withoutfcs"):call(buffer(from, stop - from):tvb(), packet, below)
    end
    return stop
end

function report.dissector(buffer, packet, tree)
    if buffer:len() < 12 or buffer(0, 1):bitfield(0, 4) ~= 2 then
        return 0
    end
    local top = tree:add(report, buffer(), "Telemetry report 2.0")
    top:add(r.version, buffer(0, 4))
    top:add(r.hardware, buffer(0, 4))
    top:add(r.sequence, buffer(0, 4))
    top:add(r.node, buffer(4, 4))
    local from, to = tostring(packet.src), tostring(packet.dst)   -- the reported packet's would stand there
    local at = 8
    while at + 4 <= buffer:len() do
        at = add_report(buffer, at, packet, top)
    end
    packet.cols.protocol = "INT report"
    packet.cols.src, packet.cols.dst = from, to
    packet.cols.info = string.format(
        "node %d, number %d", buffer(4, 4):uint(), buffer(0, 4):bitfield(10, 22))
    return buffer:len()
end

DissectorTable.get("udp.port"):add(REPORT_PORT, report)
