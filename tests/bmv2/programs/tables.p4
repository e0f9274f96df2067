// Every kind of table: exact, lpm, ternary, range, optional, const entries, action profile and selector, switch, hit and miss.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> a; bit<16> b; bit<32> c; bit<12> d; bit<4> e; }
header result_t {
    bit<8> exact_; bit<8> lpm_; bit<8> ternary_; bit<8> range_; bit<8> mixed_; bit<8> const_; bit<8> profile_; bit<8> selector_;
    bit<16> wide; bit<8> hits; bit<8> ran;
}
header other_t { bit<9> unaligned; bit<7> rest; }

struct headers_t { key_t key; result_t result; other_t other; }
struct metadata_t { }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.key);
        packet.extract(hdr.result);
        transition select(hdr.key.e) { 0: accept; default: other; }
    }
    state other { packet.extract(hdr.other); transition accept; }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) exact_hits;
    direct_counter(CounterType.packets) ternary_hits;
    action_profile(16) profile;
    action_selector(HashAlgorithm.crc16, 64, 16) narrow_selector;
    action_selector(HashAlgorithm.crc32, 64, 32) wide_selector;

    action set_exact(bit<8> value) { hdr.result.exact_ = value; exact_hits.count(); }
    action set_lpm(bit<8> value) { hdr.result.lpm_ = value; }
    action set_ternary(bit<8> value) { hdr.result.ternary_ = value; ternary_hits.count(); }
    action set_range(bit<8> value) { hdr.result.range_ = value; }
    action set_mixed(bit<8> value) { hdr.result.mixed_ = value; }
    action set_const(bit<8> value) { hdr.result.const_ = value; }
    action set_profile(bit<8> value) { hdr.result.profile_ = value; }
    action set_selector(bit<8> value) { hdr.result.selector_ = value; }
    action set_wide(bit<16> value) { hdr.result.wide = value; }
    action forward(bit<9> port) { standard.egress_spec = port; }
    action drop() { mark_to_drop(standard); }
    action one() { hdr.result.ran = 1; }
    action two(bit<4> value) { hdr.result.ran[7:4] = value; }

    table exact_table {
        key = { hdr.key.a: exact; hdr.key.b: exact; hdr.other.isValid(): exact; }
        actions = { set_exact; @defaultonly NoAction; }
        counters = exact_hits;
        default_action = NoAction();
        size = 64;
    }
    table lpm_table {
        key = { hdr.key.c: lpm; }
        actions = { set_lpm; }
        default_action = set_lpm(0xff);
        size = 64;
    }
    table exact_lpm_table {
        key = { hdr.key.a: exact; hdr.key.b: lpm; }
        actions = { set_mixed; NoAction; }
        size = 64;
    }
    table ternary_table {
        key = { hdr.key.b: ternary; hdr.key.d: ternary; hdr.other.unaligned: ternary; }
        actions = { set_ternary; NoAction; }
        counters = ternary_hits;
        size = 64;
    }
    table range_table {
        key = { hdr.key.b: range; hdr.key.a: exact; hdr.key.c: ternary; hdr.key.d: optional; }
        actions = { set_range; NoAction; }
        size = 64;
    }
    table const_table {
        key = { hdr.key.d: ternary; hdr.key.e: exact; }
        actions = { set_const; }
        default_action = set_const(0x99);
        const entries = {
            (0x100 &&& 0xf00, 1): set_const(1);
            (0x120 &&& 0xff0, 1): set_const(2);
            (_, 2): set_const(3);
            (0x001 &&& 0x001, 2): set_const(4);
        }
    }
    table profile_table {
        key = { hdr.key.a: exact; }
        actions = { set_profile; drop; }
        implementation = profile;
        size = 64;
    }
    table selector_table {
        key = { hdr.key.a: exact; hdr.key.b: selector; hdr.key.d: selector; }
        actions = { set_selector; drop; }
        implementation = narrow_selector;
        size = 64;
    }
    table wide_selector_table {
        key = { hdr.key.c: lpm; hdr.key.a: selector; hdr.key.c: selector; hdr.key.e: selector; }
        actions = { set_wide; drop; }
        implementation = wide_selector;
        size = 64;
    }
    table forward_table {
        key = { hdr.key.a[3:0]: exact; standard.ingress_port: exact; }
        actions = { forward; drop; one; two; }
        default_action = drop();
        size = 64;
    }

    apply {
        if (!hdr.result.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 1;
        bit<8> hits = 0;
        if (exact_table.apply().hit) { hits = hits | 1; }
        if (lpm_table.apply().hit) { hits = hits | 2; }
        if (exact_lpm_table.apply().miss) { hits = hits | 4; }
        if (ternary_table.apply().hit) { hits = hits | 8; }
        if (range_table.apply().hit) { hits = hits | 16; }
        if (const_table.apply().hit) { hits = hits | 32; }
        if (profile_table.apply().hit) { hits = hits | 64; }
        if (selector_table.apply().hit) { hits = hits | 128; }
        wide_selector_table.apply();
        hdr.result.hits = hits;
        switch (forward_table.apply().action_run) {
            one: { hdr.result.ran = hdr.result.ran + 0x10; standard.egress_spec = 2; }
            two: { standard.egress_spec = 3; }
            default: { hdr.key.e = 15; }
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control Update(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.key); packet.emit(hdr.result); packet.emit(hdr.other); }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
