/*
 * Numbers and headers of classification: the wire format of a request and its answer (docs/design.md §2.6), ids of tables and
 * actions, and the limits of a model. The program for Tofino has no part in it: its fields' containers are all taken.
 */

#ifndef WEIR_CLASSIFICATION_P4
#define WEIR_CLASSIFICATION_P4

#include "../common/repeat.p4"

#define CLASSIFICATION

/* The wire */
const bit<16> CLASSIFICATION_PORT      = 22347;
const bit<16> UDP_BYTES_CLASSIFICATION = 88;          // 8 + 16 + FEATURES
const bit<32> CLASSIFICATION_REQUEST   = 0x57490100;  // magic, version 1, status 0

const bit<8> CLASSIFIED    = 1;
const bit<8> UNKNOWN_MODEL = 2;   // this node does not have the model that was asked for, or is just replacing it

/* Limits of a model */
#define CODE_BITS   128    // thresholds of one tree
#define ALL_CODES   2048   // CODE_BITS, of 16 trees
#define CLASS_BITS  8      // of a class's number of votes
#define ALL_CLASSES 128    // CLASS_BITS, of 16 classes
#define MODELS      16     // numbers that requests may have
#define INTERVALS   512    // of a feature, two models'
#define LEAVES      512    // of a tree, two models'

#define EACH_FEATURE(F) FIRST_TEN(F) TEN(F, 1) TEN(F, 2) TEN(F, 3) TEN(F, 4) TEN(F, 5) F(60) F(61) F(62) F(63)
#define EACH_TREE(F)    FIRST_TEN(F) F(10) F(11) F(12) F(13) F(14) F(15)
#define EACH_CLASS(F)   EACH_TREE(F)

/* Ids. Feature i's table is 10 and i's digits behind each other, tree i's is 20 and i's digits. */
#define MODELS_TABLE_ID          27
#define FEATURE_TABLE_ID(i)      10##i
#define TREE_TABLE_ID(i)         20##i
#define SERVE_ACTION_ID          160
#define ENCODE_ACTION_ID         161
#define VOTE_ACTION_ID           162
#define COUNT_VOTES_ACTION_ID    163
#define ANSWER_ACTION_ID         164

header classification_t {
    bit<16> magic;
    bit<8>  version;
    bit<8>  status;        // 0: a request
    bit<32> model;         // that must answer, 0: any; in an answer: that did
    bit<32> sequence;      // the sender's, unchanged
    bit<8>  class_index;
    bit<8>  votes;         // for this class
    bit<8>  trees;         // that voted
    bit<8>  reserved;
}

#define FEATURE_FIELD(i) bit<8> feature_##i;
header features_t {
    EACH_FEATURE(FEATURE_FIELD)
}

#endif
