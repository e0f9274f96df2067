/* What travels with a packet through ingress, and from ingress to egress. */

#ifndef WEIR_FOREST_METADATA_P4
#define WEIR_FOREST_METADATA_P4

/* In front of every packet between ingress and egress. A class has a byte of the ballots: four bits with its votes, then four with
 * 15 - that class. So the largest byte is that of the class with the most votes, of equals the first. */
header bridged_t {
    bit<7>  _pad;
    bit<1>  asked;          // it is a request to this node
    bit<8>  trees;          // that must vote
    bit<8>  voted;          // that have
    bit<32> ballots_0;      // of the classes 0 to 3
    bit<32> ballots_1;
    bit<32> ballots_2;
    bit<32> ballots_3;
}

/* The same, as egress takes it apart */
#define BALLOT_FIELD(i) bit<8> ballot_##i;
header counted_t {
    bit<7>  _pad;
    bit<1>  asked;
    bit<8>  trees;
    bit<8>  voted;
    EACH_CLASS(BALLOT_FIELD)
}

#define WORD_FIELD(i) bit<32> word_##i;
struct ingress_metadata_t {
    bridged_t bridged;
    bit<16>   src_port;            // UDP's or 0: part of the ECMP hash
    bit<16>   dst_port;
    bool      ipv4_damaged;        // its checksum does not hold
    bit<8>    drop_reason;
    Fate      fate;
    bool      mine;                // addressed to this node
    bit<32>   other_source;        // not 0: the source address is not that of the host at its port
    bit<8>    barred;
    /* the model, and the sample as its trees see it */
    bit<32>   model;               // its number
    bit<1>    bank;
    EACH_WORD(WORD_FIELD)
    /* votes of the trees with an odd number */
    bit<8>    odd_voted;
    bit<32>   odd_ballots_0;
    bit<32>   odd_ballots_1;
    bit<32>   odd_ballots_2;
    bit<32>   odd_ballots_3;
}

struct egress_metadata_t {
    counted_t counted;
    bit<8>    missing;             // trees that have not voted
}

#endif
