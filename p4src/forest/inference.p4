/*
 * Classification of samples by a decision forest that the control plane loads as table entries, as a chip can do it.
 *
 *   ingress   model number ─models─▶ bank ─feature_0 … feature_63─▶ 16 words ─tree_0 … tree_9─▶ ballots
 *   egress    ballots ─largest─▶ class
 *
 * A word has the thermometer codes of four features, whose tables are in four stages: so each stage has 16 of them. They have a row
 * for each value, since a stage has room for eight tables with ranges only. Every tree's row
 * is matched with all words, 512 bits, which is what one stage's crossbar takes: two trees a stage, with 12 blocks of 44 bits each.
 *
 * Reads classification and features; writes meta.model, meta.bank, the words, and the ballots in meta.bridged.
 */

control Inference(inout headers_t hdr, inout ingress_metadata_t meta) {
    @id(SERVE_ACTION_ID)
    action serve(bit<1> in_bank, bit<32> model, bit<8> n_trees) {
        meta.bank = in_bank;
        meta.model = model;
        meta.bridged.trees = n_trees;
    }

    @id(MODELS_TABLE_ID)
    table models {
        key = { hdr.classification.model: exact @name("model"); }
        actions = { serve; @defaultonly NoAction; }
        const default_action = NoAction;
        size = MODELS;
    }

    /* The id of an action that is another one in each word cannot be one number: P4Info has 161 for the first. */
#define ENCODE_ACTION(i) \
    action encode_##i(bit<WORD_BITS> above) { \
        meta.word_##i = meta.word_##i | above; \
    }
    EACH_WORD(ENCODE_ACTION)

#define FEATURE_TABLE(i, word) \
    @id(FEATURE_TABLE_ID(i)) \
    table feature_##i { \
        key = { meta.bank: exact @name("bank"); hdr.features.feature_##i: exact @name("value"); } \
        actions = { encode_##word; @defaultonly NoAction; } \
        const default_action = NoAction; \
        size = VALUES; \
    }
#define FEATURES_OF_WORD(word, a, b, c, d) \
    FEATURE_TABLE(a, word) FEATURE_TABLE(b, word) FEATURE_TABLE(c, word) FEATURE_TABLE(d, word)
    FEATURES_OF_WORD(0, 0, 1, 2, 3)
    FEATURES_OF_WORD(1, 4, 5, 6, 7)
    FEATURES_OF_WORD(2, 8, 9, 10, 11)
    FEATURES_OF_WORD(3, 12, 13, 14, 15)
    FEATURES_OF_WORD(4, 16, 17, 18, 19)
    FEATURES_OF_WORD(5, 20, 21, 22, 23)
    FEATURES_OF_WORD(6, 24, 25, 26, 27)
    FEATURES_OF_WORD(7, 28, 29, 30, 31)
    FEATURES_OF_WORD(8, 32, 33, 34, 35)
    FEATURES_OF_WORD(9, 36, 37, 38, 39)
    FEATURES_OF_WORD(10, 40, 41, 42, 43)
    FEATURES_OF_WORD(11, 44, 45, 46, 47)
    FEATURES_OF_WORD(12, 48, 49, 50, 51)
    FEATURES_OF_WORD(13, 52, 53, 54, 55)
    FEATURES_OF_WORD(14, 56, 57, 58, 59)
    FEATURES_OF_WORD(15, 60, 61, 62, 63)

    action vote_even(bit<32> ballot_0, bit<32> ballot_1, bit<32> ballot_2, bit<32> ballot_3) {
        meta.bridged.ballots_0 = meta.bridged.ballots_0 + ballot_0;
        meta.bridged.ballots_1 = meta.bridged.ballots_1 + ballot_1;
        meta.bridged.ballots_2 = meta.bridged.ballots_2 + ballot_2;
        meta.bridged.ballots_3 = meta.bridged.ballots_3 + ballot_3;
        meta.bridged.voted = meta.bridged.voted + 1;
    }

    action vote_odd(bit<32> ballot_0, bit<32> ballot_1, bit<32> ballot_2, bit<32> ballot_3) {
        meta.odd_ballots_0 = meta.odd_ballots_0 + ballot_0;
        meta.odd_ballots_1 = meta.odd_ballots_1 + ballot_1;
        meta.odd_ballots_2 = meta.odd_ballots_2 + ballot_2;
        meta.odd_ballots_3 = meta.odd_ballots_3 + ballot_3;
        meta.odd_voted = meta.odd_voted + 1;
    }

#define WORD_KEY(i) meta.word_##i: ternary;
#define TREE_TABLE_OF(i, vote) \
    @id(TREE_TABLE_ID(i)) \
    table tree_##i { \
        key = { meta.bank: exact @name("bank"); EACH_WORD(WORD_KEY) } \
        actions = { vote; @defaultonly NoAction; } \
        const default_action = NoAction; \
        size = CHIP_LEAVES; \
    }
#define EVEN_TREE(i) TREE_TABLE_OF(i, vote_even)
#define ODD_TREE(i) TREE_TABLE_OF(i, vote_odd)
    EACH_EVEN_TREE(EVEN_TREE)
    EACH_ODD_TREE(ODD_TREE)

    action count_votes() {
        meta.bridged.ballots_0 = meta.bridged.ballots_0 + meta.odd_ballots_0;
        meta.bridged.ballots_1 = meta.bridged.ballots_1 + meta.odd_ballots_1;
        meta.bridged.ballots_2 = meta.bridged.ballots_2 + meta.odd_ballots_2;
        meta.bridged.ballots_3 = meta.bridged.ballots_3 + meta.odd_ballots_3;
        meta.bridged.voted = meta.bridged.voted + meta.odd_voted;
    }

#define APPLY_FEATURE(i) feature_##i.apply();
#define APPLY_TREE(i) tree_##i.apply();
    /* Without a condition, so that a chip may place what follows beside it: what comes of other packets is not used. */
    apply {
        models.apply();
        EACH_FEATURE(APPLY_FEATURE)
        EACH_EVEN_TREE(APPLY_TREE)
        EACH_ODD_TREE(APPLY_TREE)
        count_votes();
    }
}

/* The class with the most votes, in egress. Reads counted; writes classification. */
control Counting(inout headers_t hdr, inout egress_metadata_t meta) {
#define LARGER(i, j) meta.counted.ballot_##i = max(meta.counted.ballot_##i, meta.counted.ballot_##j);
    action larger_of_two() {
        LARGER(0, 1) LARGER(2, 3) LARGER(4, 5) LARGER(6, 7) LARGER(8, 9) LARGER(10, 11) LARGER(12, 13) LARGER(14, 15)
        meta.missing = meta.counted.trees - meta.counted.voted;
    }
    action larger_of_four() {
        LARGER(0, 2) LARGER(4, 6) LARGER(8, 10) LARGER(12, 14)
    }
    action larger_of_eight() {
        LARGER(0, 4) LARGER(8, 12)
    }
    action largest() {
        LARGER(0, 8)
    }

    action classify(bit<8> class_index, bit<8> votes) {
        hdr.classification.status = CLASSIFIED;
        hdr.classification.class_index = class_index;
        hdr.classification.votes = votes;
        hdr.classification.trees = meta.counted.trees;
    }

    /* A table, since the 16 bytes that are compared fill a group of containers, in which an action's sources must be. */
#define BALLOT_ENTRY(i) 8w##i: classify(15 - (8w##i & 15), 8w##i >> 4);
    table answers {
        key = { meta.counted.ballot_0: exact; }
        actions = { classify; }
        const entries = { EACH_BYTE(BALLOT_ENTRY) }
        size = 256;
    }

    action not_here() {
        hdr.classification.status = UNKNOWN_MODEL;
        hdr.classification.class_index = 0;
        hdr.classification.votes = 0;
        hdr.classification.trees = meta.counted.trees;
    }

    apply {
        larger_of_two();
        larger_of_four();
        larger_of_eight();
        largest();
        if (meta.counted.trees != 0 && meta.missing == 0) {
            answers.apply();
        } else {
            not_here();
        }
    }
}
