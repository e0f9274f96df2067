// Where copies come from and what they remember: multicast, clones, truncation, the CPU port.
//
//   op bits: 1 clone I2E, 2 drop at the end of egress, 4 clone E2E, 8 multicast, 16 the frame's port is its priority too,
//            64 truncate, 128 drop the original at the end of ingress
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in") header packet_in_t { bit<9> ingress_port; bit<7> reason; }
@controller_header("packet_out") header packet_out_t { bit<9> egress_port; bit<7> flags; }
header op_t { bit<8> op; bit<8> session; bit<16> group; bit<16> port; bit<8> steps; bit<8> length; }
header trace_t {
    bit<8> instance; bit<16> ingress_port; bit<16> egress_port; bit<16> rid; bit<32> packet_length; bit<8> lost; bit<8> unset; bit<16> spec;
}

struct headers_t { packet_in_t packet_in; packet_out_t packet_out; trace_t trace; op_t op; }
struct metadata_t { bit<8> lost; }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) { 510: from_cpu; default: frame; }
    }
    state from_cpu { packet.extract(hdr.packet_out); transition frame; }
    state frame {
        packet.extract(hdr.op);
        meta.lost = hdr.op.length;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            exit;
        }
        if (!hdr.op.isValid()) { mark_to_drop(standard); return; }
        standard.egress_spec = hdr.op.port[8:0];
        hdr.op.steps = hdr.op.steps + 1;
        meta.lost = meta.lost + 1;
        if (hdr.op.op[0:0] == 1) { clone(CloneType.I2E, (bit<32>) hdr.op.session); }
        if (hdr.op.op[4:4] == 1) { standard.priority = hdr.op.port[2:0]; }
        if (hdr.op.op[3:3] == 1) { standard.mcast_grp = hdr.op.group; }
        if (hdr.op.op[6:6] == 1) { truncate((bit<32>) hdr.op.length); }
        if (hdr.op.op[7:7] == 1) { mark_to_drop(standard); }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.op.isValid() && hdr.op.op[2:2] == 1 && standard.instance_type != 2) {
            hdr.op.steps = hdr.op.steps + 0x10;
            clone(CloneType.E2E, (bit<32>) hdr.op.session);
            hdr.op.steps = hdr.op.steps + 0x20;
        }
        if (standard.egress_port == 510) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = standard.instance_type[6:0];
        }
        if (hdr.op.isValid() && hdr.op.op[1:1] == 1) { mark_to_drop(standard); }
        if (hdr.op.isValid()) {
            hdr.trace.setValid();
            hdr.trace.instance = standard.instance_type[7:0];
            hdr.trace.ingress_port = (bit<16>) standard.ingress_port;
            hdr.trace.egress_port = (bit<16>) standard.egress_port;
            hdr.trace.rid = standard.egress_rid;
            hdr.trace.packet_length = standard.packet_length;
            hdr.trace.lost = meta.lost;
            hdr.trace.spec = (bit<16>) standard.egress_spec;
        }
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.packet_in); packet.emit(hdr.trace); packet.emit(hdr.op); }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
