/* EACH_LANE(F) is F(0) F(1) … F(255): what must repeat per lane is written once. */

#ifndef WEIR_LANES_P4
#define WEIR_LANES_P4

#define TEN_LANES(F, tens) \
    F(tens##0) F(tens##1) F(tens##2) F(tens##3) F(tens##4) F(tens##5) F(tens##6) F(tens##7) F(tens##8) F(tens##9)

#define EACH_LANE(F) \
    F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) \
    TEN_LANES(F, 1) TEN_LANES(F, 2) TEN_LANES(F, 3) TEN_LANES(F, 4) TEN_LANES(F, 5) TEN_LANES(F, 6) \
    TEN_LANES(F, 7) TEN_LANES(F, 8) TEN_LANES(F, 9) TEN_LANES(F, 10) TEN_LANES(F, 11) TEN_LANES(F, 12) \
    TEN_LANES(F, 13) TEN_LANES(F, 14) TEN_LANES(F, 15) TEN_LANES(F, 16) TEN_LANES(F, 17) TEN_LANES(F, 18) \
    TEN_LANES(F, 19) TEN_LANES(F, 20) TEN_LANES(F, 21) TEN_LANES(F, 22) TEN_LANES(F, 23) TEN_LANES(F, 24) \
    F(250) F(251) F(252) F(253) F(254) F(255)

#endif
