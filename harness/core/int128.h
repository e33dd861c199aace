/* The 128-bit integers of gcc and clang, for exact sums and rank arithmetic. */
#ifndef HARNESS_CORE_INT128_H
#define HARNESS_CORE_INT128_H
__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;
#endif
