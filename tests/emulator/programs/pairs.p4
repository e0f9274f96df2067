// Whole frames from port to port, unchanged: 1 to 2, 2 to 1, 3 to the CPU. No header is parsed, no table looked up.

#include <core.p4>
#include <v1model.p4>

struct Headers {}
struct Metadata {}

parser PairsParser(packet_in packet, out Headers hdr, inout Metadata meta, inout standard_metadata_t standard) {
    state start { transition accept; }
}

control PairsVerify(inout Headers hdr, inout Metadata meta) { apply {} }

control PairsIngress(inout Headers hdr, inout Metadata meta, inout standard_metadata_t standard) {
    apply {
        if (standard.ingress_port == 1) {
            standard.egress_spec = 2;
        } else if (standard.ingress_port == 2) {
            standard.egress_spec = 1;
        } else {
            standard.egress_spec = 510;
        }
    }
}

control PairsEgress(inout Headers hdr, inout Metadata meta, inout standard_metadata_t standard) { apply {} }
control PairsUpdate(inout Headers hdr, inout Metadata meta) { apply {} }
control PairsDeparser(packet_out packet, in Headers hdr) { apply {} }

V1Switch(PairsParser(), PairsVerify(), PairsIngress(), PairsEgress(), PairsUpdate(), PairsDeparser()) main;
