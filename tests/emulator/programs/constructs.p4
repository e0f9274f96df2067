// The parser's, the actions' and the externs' constructs, each chosen by the packet's first byte.
#include <core.p4>
#include <v1model.p4>

error { Unlucky }

header choice_t { bit<8> what; bit<8> index; }
header odd_t { bit<3> a; bit<13> b; bit<5> c; bit<11> d; bit<7> e; bit<1> f; bit<48> g; bit<80> h; }
header pair_t { bit<32> left; bit<32> right; }
header extra_t { bit<16> x; }
struct headers_t { choice_t choice; odd_t odd; pair_t pair; pair_t spare; extra_t extra; }
struct metadata_t { bit<16> carried; bit<32> scratch; bool flag; }

parser ConstructsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.choice);
        transition select(hdr.choice.what, sm.ingress_port) {
            (0x10 &&& 0xf0, _): odd;
            (_, 9): peek;
            default: pair;
        }
    }
    state odd { packet.extract(hdr.odd); transition pair; }
    state pair {
        packet.extract(hdr.pair);
        verify(hdr.pair.left != 13, error.Unlucky);
        meta.carried = hdr.pair.left[15:0];
        transition accept;
    }
    state peek {
        bit<16> ahead = packet.lookahead<bit<16>>();
        packet.advance(16);
        hdr.extra.setValid();
        hdr.extra.x = ahead;
        transition pair;
    }
}
control ConstructsVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control ConstructsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<32>>(16) words;
    register<bit<48>>(16) times;
    register<bit<7>>(10) small;
    counter(4, CounterType.packets_and_bytes) counted;
    action drop() { mark_to_drop(sm); }
    action read_write() {
        words.read(meta.scratch, (bit<32>) hdr.choice.index);
        words.write((bit<32>) hdr.choice.index, hdr.pair.left);
        hdr.pair.right = meta.scratch;
        times.write((bit<32>) hdr.choice.index, hdr.pair.left ++ 16w0xffff);
        words.read(hdr.pair.left, (bit<32>) hdr.choice.index);
    }
    action moving_index() {
        words.write((bit<32>) hdr.choice.index, 1);
        hdr.choice.index = hdr.choice.index + 1;
        words.write((bit<32>) hdr.choice.index, 2);
        small.write((bit<32>) hdr.choice.index, hdr.pair.left[6:0]);
    }
    action jumps() {
        if (hdr.pair.left > 100) {
            hdr.pair.right = 1;
            if (hdr.pair.left > 1000) { hdr.pair.right = 2; }
        } else {
            hdr.pair.right = 3;
        }
        hdr.pair.left = hdr.pair.right + 10;
    }
    action twist() {
        hdr.odd.a = hdr.odd.a + 1;
        hdr.odd.b = hdr.odd.b - 1;
        hdr.odd.c = hdr.odd.c ^ 5w21;
        hdr.odd.d = hdr.odd.d << 1;
        hdr.odd.e = hdr.odd.e >> 1;
        hdr.odd.f = ~hdr.odd.f;
        hdr.odd.g = hdr.odd.g + 0xffff;
        hdr.odd.h = hdr.odd.h + 1;
    }
    apply {
        standard_metadata_t before = sm;
        sm.egress_spec = 2;
        if (sm.parser_error == error.PacketTooShort) { counted.count(0); drop(); return; }
        if (sm.parser_error == error.Unlucky) { counted.count(1); drop(); exit; }
        if (hdr.odd.isValid()) { twist(); }
        if (hdr.choice.what == 1) { read_write(); }
        if (hdr.choice.what == 2) { moving_index(); }
        if (hdr.choice.what == 3) { jumps(); }
        if (hdr.choice.what == 4) { counted.count((bit<32>) hdr.choice.index); }
        if (hdr.choice.what == 5) { clone(CloneType.I2E, (bit<32>) hdr.choice.index); }
        if (hdr.choice.what == 6) { truncate((bit<32>) hdr.choice.index); }
        if (hdr.choice.what == 7) { hash(hdr.pair.right, HashAlgorithm.crc32, 32w0, { hdr.pair.left, hdr.choice.index }, 64w0x100000000); }
        if (hdr.choice.what == 8) { hash(hdr.pair.right, HashAlgorithm.crc16, 32w1000, { hdr.pair.left, hdr.choice.index }, 32w77); }
        if (hdr.choice.what == 9) { hdr.pair.setInvalid(); hdr.extra.setValid(); }
        if (hdr.choice.what == 10) { hdr.spare = hdr.pair; hdr.spare.left = 5; }
        if (hdr.choice.what == 11) { sm.mcast_grp = 7; }
        if (hdr.choice.what == 12) { sm.mcast_grp = 7; drop(); }
        if (hdr.choice.what == 13) { hash(hdr.pair.right, HashAlgorithm.csum16, 32w0, { hdr.pair.left, hdr.choice.index }, 32w0x10000); }
        if (hdr.choice.what == 14) { hash(hdr.pair.right, HashAlgorithm.xor16, 32w0, { hdr.pair.left, hdr.choice.index }, 32w0x10000); }
        if (hdr.choice.what == 44) { sm.priority = 5; before.priority = 3; before.egress_spec = 4; sm = before; }
        if (hdr.choice.what == 15) { hash(hdr.pair.right, HashAlgorithm.identity, 32w0, { hdr.pair.left }, 64w0x100000000); }
    }
}
control ConstructsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.choice.what == 40) { hdr.pair.right = (bit<32>) meta.carried; }
        if (hdr.choice.what == 41) { clone(CloneType.E2E, (bit<32>) hdr.choice.index); mark_to_drop(sm); }
        if (hdr.choice.what == 42) { meta.scratch = meta.scratch + 1; hdr.pair.right = meta.scratch; }
    }
}
control ConstructsUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }
control ConstructsDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.choice); packet.emit(hdr.odd); packet.emit(hdr.extra); packet.emit(hdr.pair); packet.emit(hdr.spare); }
}
V1Switch(ConstructsParser(), ConstructsVerify(), ConstructsIngress(), ConstructsEgress(), ConstructsUpdate(), ConstructsDeparser()) main;
