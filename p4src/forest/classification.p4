/*
 * Limits of a model on a chip. Here all trees share one key: a bit for each distinct threshold of the forest, in a word of 32 bits
 * for each four features. The packet, and all names and ids, are those of bmv2/classification.p4.
 */

#ifndef WEIR_FOREST_CLASSIFICATION_P4
#define WEIR_FOREST_CLASSIFICATION_P4

#include "../bmv2/classification.p4"
#include "../common/sizes.p4"

#define WORD_BITS       32     // thresholds of four features that follow each other
#define VALUES          512    // of a feature, two models'
#define CHIP_LEAVES     512    // of a tree, two models'

#define EACH_WORD(F)    FIRST_TEN(F) F(10) F(11) F(12) F(13) F(14) F(15)

/* Two trees are asked in each stage: those with an even number vote in one half of the ballots, the others in the other. */
#define EACH_EVEN_TREE(F) F(0) F(2) F(4) F(6) F(8)
#define EACH_ODD_TREE(F)  F(1) F(3) F(5) F(7) F(9)

/* What is left for them beside the features' tables */
#undef ROUTES
#define ROUTES 2048

#endif
