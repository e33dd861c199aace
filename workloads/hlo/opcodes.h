/* The opcodes of HLO: enum, name in text, least and most operands (-1: any number), cost class.
 * Names and arities: openxla/xla `xla/hlo/ir/hlo_opcode.h`. Sorted by name; a test asserts it. */
#ifndef WORKLOADS_HLO_OPCODES_H
#define WORKLOADS_HLO_OPCODES_H

/* How an op is priced; cost.c has one function a class. */
enum hlo_class {
    HLO_CLASS_UNKNOWN,        /* an opcode that this table does not have */
    HLO_CLASS_ELEMENTWISE,    /* one flop an output element */
    HLO_CLASS_SELECTION,      /* the same by XLA's count, none of arithmetic: convert, select */
    HLO_CLASS_TRANSCENDENTAL, /* one transcendental an output element */
    HLO_CLASS_MOVE,           /* reads its operands, writes its result */
    HLO_CLASS_RELAYOUT,       /* a move, or nothing where the layouts agree: reshape, transpose */
    HLO_CLASS_FREE,           /* touches nothing */
    HLO_CLASS_POINTERS,       /* a table of pointers to XLA, nothing to a machine */
    HLO_CLASS_DOT,
    HLO_CLASS_RAGGED_DOT,
    HLO_CLASS_CONVOLUTION,
    HLO_CLASS_REDUCE,
    HLO_CLASS_REDUCE_WINDOW,
    HLO_CLASS_SELECT_AND_SCATTER,
    HLO_CLASS_MAP,
    HLO_CLASS_SCAN,
    HLO_CLASS_SORT,
    HLO_CLASS_TOPK,
    HLO_CLASS_FFT,
    HLO_CLASS_CHOLESKY,
    HLO_CLASS_TRIANGULAR_SOLVE,
    HLO_CLASS_RNG,
    HLO_CLASS_SLICE,
    HLO_CLASS_DYNAMIC_SLICE,
    HLO_CLASS_DYNAMIC_UPDATE_SLICE,
    HLO_CLASS_GATHER,
    HLO_CLASS_SCATTER,
    HLO_CLASS_INFEED,
    HLO_CLASS_OUTFEED,
    HLO_CLASS_COLLECTIVE, /* also its -start */
    HLO_CLASS_TRANSFER,   /* copy-start, send, recv: priced once, on the start */
    HLO_CLASS_DONE,       /* the second half of a pair */
    HLO_CLASS_ASYNC,      /* async-start of a wrapped op */
    HLO_CLASS_FUSION,
    HLO_CLASS_CALL,
    HLO_CLASS_WHILE,
    HLO_CLASS_CONDITIONAL,
    HLO_CLASS_CUSTOM_CALL,
    HLO_CLASSES
};

// clang-format off
#define HLO_OPCODES(X) \
    X(ABS, "abs", 1, 1, ELEMENTWISE) \
    X(ACOS, "acos", 1, 1, TRANSCENDENTAL) \
    X(ACOSH, "acosh", 1, 1, TRANSCENDENTAL) \
    X(ADD, "add", 2, 2, ELEMENTWISE) \
    X(ADD_DEPENDENCY, "add-dependency", 2, 2, FREE) \
    X(AFTER_ALL, "after-all", 0, -1, FREE) \
    X(ALL_GATHER, "all-gather", 1, -1, COLLECTIVE) \
    X(ALL_GATHER_DONE, "all-gather-done", 1, 1, DONE) \
    X(ALL_GATHER_START, "all-gather-start", 1, -1, COLLECTIVE) \
    X(ALL_REDUCE, "all-reduce", 0, -1, COLLECTIVE) \
    X(ALL_REDUCE_DONE, "all-reduce-done", 1, 1, DONE) \
    X(ALL_REDUCE_START, "all-reduce-start", 0, -1, COLLECTIVE) \
    X(ALL_TO_ALL, "all-to-all", 1, -1, COLLECTIVE) \
    X(AND, "and", 2, 2, ELEMENTWISE) \
    X(ASIN, "asin", 1, 1, TRANSCENDENTAL) \
    X(ASINH, "asinh", 1, 1, TRANSCENDENTAL) \
    X(ASYNC_DONE, "async-done", 1, 1, DONE) \
    X(ASYNC_START, "async-start", 0, -1, ASYNC) \
    X(ASYNC_UPDATE, "async-update", 0, -1, DONE) \
    X(ATAN, "atan", 1, 1, TRANSCENDENTAL) \
    X(ATAN2, "atan2", 2, 2, TRANSCENDENTAL) \
    X(ATANH, "atanh", 1, 1, TRANSCENDENTAL) \
    X(BATCH_NORM_GRAD, "batch-norm-grad", 5, 5, MOVE) \
    X(BATCH_NORM_INFERENCE, "batch-norm-inference", 5, 5, MOVE) \
    X(BATCH_NORM_TRAINING, "batch-norm-training", 3, 3, MOVE) \
    X(BITCAST, "bitcast", 1, 1, FREE) \
    X(BITCAST_CONVERT, "bitcast-convert", 1, 1, SELECTION) \
    X(BROADCAST, "broadcast", 1, 1, MOVE) \
    X(CALL, "call", 0, -1, CALL) \
    X(CBRT, "cbrt", 1, 1, TRANSCENDENTAL) \
    X(CEIL, "ceil", 1, 1, ELEMENTWISE) \
    X(CHOLESKY, "cholesky", 1, 1, CHOLESKY) \
    X(CLAMP, "clamp", 3, 3, ELEMENTWISE) \
    X(COLLECTIVE_BROADCAST, "collective-broadcast", 1, -1, COLLECTIVE) \
    X(COLLECTIVE_PERMUTE, "collective-permute", 1, -1, COLLECTIVE) \
    X(COLLECTIVE_PERMUTE_DONE, "collective-permute-done", 1, 1, DONE) \
    X(COLLECTIVE_PERMUTE_START, "collective-permute-start", 1, -1, COLLECTIVE) \
    X(COLLECTIVE_REDUCE, "collective-reduce", 1, -1, COLLECTIVE) \
    X(COMPARE, "compare", 2, 2, ELEMENTWISE) \
    X(COMPLEX, "complex", 2, 2, ELEMENTWISE) \
    X(CONCATENATE, "concatenate", 1, -1, MOVE) \
    X(CONDITIONAL, "conditional", 1, -1, CONDITIONAL) \
    X(CONSTANT, "constant", 0, 0, FREE) \
    X(CONVERT, "convert", 1, 1, SELECTION) \
    X(CONVOLUTION, "convolution", 2, -1, CONVOLUTION) \
    X(COPY, "copy", 1, 1, MOVE) \
    X(COPY_DONE, "copy-done", 1, 1, DONE) \
    X(COPY_START, "copy-start", 1, 1, TRANSFER) \
    X(COSH, "cosh", 1, 1, TRANSCENDENTAL) \
    X(COSINE, "cosine", 1, 1, TRANSCENDENTAL) \
    X(COUNT_LEADING_ZEROS, "count-leading-zeros", 1, 1, ELEMENTWISE) \
    X(CUSTOM_CALL, "custom-call", 0, -1, CUSTOM_CALL) \
    X(DIVIDE, "divide", 2, 2, ELEMENTWISE) \
    X(DOMAIN, "domain", 1, 1, FREE) \
    X(DOT, "dot", 2, 2, DOT) \
    X(DYNAMIC_RESHAPE, "dynamic-reshape", 1, -1, MOVE) \
    X(DYNAMIC_SLICE, "dynamic-slice", 1, -1, DYNAMIC_SLICE) \
    X(DYNAMIC_UPDATE_SLICE, "dynamic-update-slice", 2, -1, DYNAMIC_UPDATE_SLICE) \
    X(ERF, "erf", 1, 1, TRANSCENDENTAL) \
    X(EXPONENTIAL, "exponential", 1, 1, TRANSCENDENTAL) \
    X(EXPONENTIAL_MINUS_ONE, "exponential-minus-one", 1, 1, TRANSCENDENTAL) \
    X(FFT, "fft", 1, 1, FFT) \
    X(FLOOR, "floor", 1, 1, ELEMENTWISE) \
    X(FUSION, "fusion", 0, -1, FUSION) \
    X(GATHER, "gather", 2, 2, GATHER) \
    X(GET_DIMENSION_SIZE, "get-dimension-size", 1, 1, MOVE) \
    X(GET_TUPLE_ELEMENT, "get-tuple-element", 1, 1, FREE) \
    X(IMAG, "imag", 1, 1, ELEMENTWISE) \
    X(INFEED, "infeed", 1, 1, INFEED) \
    X(IOTA, "iota", 0, 0, MOVE) \
    X(IS_FINITE, "is-finite", 1, 1, ELEMENTWISE) \
    X(LOG, "log", 1, 1, TRANSCENDENTAL) \
    X(LOG_PLUS_ONE, "log-plus-one", 1, 1, TRANSCENDENTAL) \
    X(LOGISTIC, "logistic", 1, 1, TRANSCENDENTAL) \
    X(MAP, "map", 0, -1, MAP) \
    X(MAXIMUM, "maximum", 2, 2, ELEMENTWISE) \
    X(MINIMUM, "minimum", 2, 2, ELEMENTWISE) \
    X(MULHI, "mulhi", 2, 2, ELEMENTWISE) \
    X(MULTIPLY, "multiply", 2, 2, ELEMENTWISE) \
    X(NEGATE, "negate", 1, 1, ELEMENTWISE) \
    X(NOT, "not", 1, 1, ELEMENTWISE) \
    X(OPT_BARRIER, "opt-barrier", 1, 1, POINTERS) \
    X(OR, "or", 2, 2, ELEMENTWISE) \
    X(OUTFEED, "outfeed", 2, 2, OUTFEED) \
    X(PAD, "pad", 2, 2, MOVE) \
    X(PARAMETER, "parameter", 0, 0, FREE) \
    X(PARTITION_ID, "partition-id", 0, 0, MOVE) \
    X(POPCNT, "popcnt", 1, 1, ELEMENTWISE) \
    X(POWER, "power", 2, 2, TRANSCENDENTAL) \
    X(RAGGED_ALL_TO_ALL, "ragged-all-to-all", 6, 6, COLLECTIVE) \
    X(RAGGED_DOT, "ragged-dot", 3, 3, RAGGED_DOT) \
    X(REAL, "real", 1, 1, ELEMENTWISE) \
    X(RECV, "recv", 1, 1, TRANSFER) \
    X(RECV_DONE, "recv-done", 1, 1, DONE) \
    X(REDUCE, "reduce", 2, -1, REDUCE) \
    X(REDUCE_PRECISION, "reduce-precision", 1, 1, ELEMENTWISE) \
    X(REDUCE_SCATTER, "reduce-scatter", 1, -1, COLLECTIVE) \
    X(REDUCE_WINDOW, "reduce-window", 2, -1, REDUCE_WINDOW) \
    X(REMAINDER, "remainder", 2, 2, ELEMENTWISE) \
    X(REPLICA_ID, "replica-id", 0, 0, MOVE) \
    X(RESHAPE, "reshape", 1, 1, RELAYOUT) \
    X(REVERSE, "reverse", 1, 1, MOVE) \
    X(RNG, "rng", 0, -1, RNG) \
    X(RNG_BIT_GENERATOR, "rng-bit-generator", 1, 1, RNG) \
    X(RNG_GET_AND_UPDATE_STATE, "rng-get-and-update-state", 0, 0, MOVE) \
    X(ROUND_NEAREST_AFZ, "round-nearest-afz", 1, 1, ELEMENTWISE) \
    X(ROUND_NEAREST_EVEN, "round-nearest-even", 1, 1, ELEMENTWISE) \
    X(RSQRT, "rsqrt", 1, 1, TRANSCENDENTAL) \
    X(SCALED_DOT, "scaled-dot", 4, 4, DOT) \
    X(SCAN, "scan", 1, -1, SCAN) \
    X(SCATTER, "scatter", 3, -1, SCATTER) \
    X(SELECT, "select", 3, 3, SELECTION) \
    X(SELECT_AND_SCATTER, "select-and-scatter", 3, 3, SELECT_AND_SCATTER) \
    X(SEND, "send", 2, 2, TRANSFER) \
    X(SEND_DONE, "send-done", 1, 1, DONE) \
    X(SET_DIMENSION_SIZE, "set-dimension-size", 2, 2, MOVE) \
    X(SHIFT_LEFT, "shift-left", 2, 2, ELEMENTWISE) \
    X(SHIFT_RIGHT_ARITHMETIC, "shift-right-arithmetic", 2, 2, ELEMENTWISE) \
    X(SHIFT_RIGHT_LOGICAL, "shift-right-logical", 2, 2, ELEMENTWISE) \
    X(SHUFFLE, "shuffle", 1, 1, MOVE) \
    X(SIGN, "sign", 1, 1, ELEMENTWISE) \
    X(SINE, "sine", 1, 1, TRANSCENDENTAL) \
    X(SINH, "sinh", 1, 1, TRANSCENDENTAL) \
    X(SLICE, "slice", 1, 1, SLICE) \
    X(SORT, "sort", 1, -1, SORT) \
    X(SQRT, "sqrt", 1, 1, TRANSCENDENTAL) \
    X(STOCHASTIC_CONVERT, "stochastic-convert", 2, 2, ELEMENTWISE) \
    X(SUBTRACT, "subtract", 2, 2, ELEMENTWISE) \
    X(TAN, "tan", 1, 1, TRANSCENDENTAL) \
    X(TANH, "tanh", 1, 1, TRANSCENDENTAL) \
    X(TOPK, "topk", 1, 1, TOPK) \
    X(TRANSPOSE, "transpose", 1, 1, RELAYOUT) \
    X(TRIANGULAR_SOLVE, "triangular-solve", 2, 2, TRIANGULAR_SOLVE) \
    X(TUPLE, "tuple", 0, -1, POINTERS) \
    X(WHILE, "while", 1, 1, WHILE) \
    X(XOR, "xor", 2, 2, ELEMENTWISE)
// clang-format on

enum hlo_opcode {
    HLO_UNKNOWN, /* its text is the attribute HLO_KEY_OPCODE */
#define X(id, name, least, most, class) HLO_##id,
    HLO_OPCODES(X)
#undef X
        HLO_OPCODE_COUNT
};

#endif
