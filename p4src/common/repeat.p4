/*
 * What must repeat is written once: F(0) F(1) … by the preprocessor.
 *
 *   EACH_NARROW_LANE(F)  F(0) … F(31), the lanes of every message that has any
 *   EACH_WIDE_LANE(F)    F(32) … F(255), those of messages of 256 lanes
 *   EACH_BYTE(F)         F(0) … F(255), for tables over all values of eight bits
 */

#ifndef WEIR_REPEAT_P4
#define WEIR_REPEAT_P4

#define TEN(F, tens) \
    F(tens##0) F(tens##1) F(tens##2) F(tens##3) F(tens##4) F(tens##5) F(tens##6) F(tens##7) F(tens##8) F(tens##9)

#define FIRST_TEN(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)

#define EACH_NARROW_LANE(F) \
    FIRST_TEN(F) TEN(F, 1) TEN(F, 2) F(30) F(31)

#define EACH_WIDE_LANE(F) \
    F(32) F(33) F(34) F(35) F(36) F(37) F(38) F(39) TEN(F, 4) TEN(F, 5) TEN(F, 6) TEN(F, 7) TEN(F, 8) TEN(F, 9) \
    TEN(F, 10) TEN(F, 11) TEN(F, 12) TEN(F, 13) TEN(F, 14) TEN(F, 15) TEN(F, 16) TEN(F, 17) TEN(F, 18) TEN(F, 19) \
    TEN(F, 20) TEN(F, 21) TEN(F, 22) TEN(F, 23) TEN(F, 24) F(250) F(251) F(252) F(253) F(254) F(255)

#define EACH_BYTE(F) EACH_NARROW_LANE(F) EACH_WIDE_LANE(F)

#endif
