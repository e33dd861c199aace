/* XLA's HLO text, read: a file of modules, a module of computations, a computation of instructions.
 *
 * A reader in one pass over the mapped text. Operands are indices, calls are indices of
 * computations, shapes are shared (equal text, one shape); attributes stay slices of the text and
 * are decoded by the functions below, where they are used. All storage is one arena that dies with
 * the file, so every pointer and `struct str` here lives as long as `struct hlo_file`. Instruction
 * names are per computation; computations stand before their callers, so a callee's index is always
 * less than its caller's.
 *
 * Grammar: openxla/xla `xla/hlo/parser`; element sizes and layouts: `xla/shape_util.cc`,
 * `docs/tiled_layout.md`. */
#ifndef WORKLOADS_HLO_HLO_H
#define WORKLOADS_HLO_HLO_H

#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "workloads/hlo/opcodes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HLO_DEPTH_MAX = 1000, /* of nested shapes, operands and brackets */
    HLO_RANK_MAX = 64,
};
#define HLO_FILE_MAX_BYTES ((size_t)UINT32_MAX) /* offsets are 32 bits */

/* Element types: name, bits in memory. A sub-byte type takes a byte an element unless its layout
 * says E(n). */
// clang-format off
#define HLO_DTYPES(X) \
    X(PRED, "pred", 8) X(S1, "s1", 8) X(S2, "s2", 8) X(S4, "s4", 8) X(S8, "s8", 8) X(S16, "s16", 16) \
    X(S32, "s32", 32) X(S64, "s64", 64) X(U1, "u1", 8) X(U2, "u2", 8) X(U4, "u4", 8) X(U8, "u8", 8) \
    X(U16, "u16", 16) X(U32, "u32", 32) X(U64, "u64", 64) X(F16, "f16", 16) X(F32, "f32", 32) \
    X(F64, "f64", 64) X(BF16, "bf16", 16) X(F4E2M1FN, "f4e2m1fn", 8) X(F8E3M4, "f8e3m4", 8) \
    X(F8E4M3, "f8e4m3", 8) X(F8E4M3B11FNUZ, "f8e4m3b11fnuz", 8) X(F8E4M3FN, "f8e4m3fn", 8) \
    X(F8E4M3FNUZ, "f8e4m3fnuz", 8) X(F8E5M2, "f8e5m2", 8) X(F8E5M2FNUZ, "f8e5m2fnuz", 8) \
    X(F8E8M0FNU, "f8e8m0fnu", 8) X(C64, "c64", 64) X(C128, "c128", 128) X(TOKEN, "token", 0) \
    X(OPAQUE, "opaque", 64)
// clang-format on
enum hlo_dtype {
#define X(id, name, bits) HLO_##id,
    HLO_DTYPES(X)
#undef X
        HLO_TUPLE_TYPE,
    HLO_BUFFER_TYPE, /* b(shape): one element */
    HLO_DTYPE_COUNT
};

/* Counts of an unbounded dimension's shape are unknown: -1. */
#define HLO_UNKNOWN_COUNT INT64_C(-1)

struct hlo_shape {
    uint8_t dtype;                 /* enum hlo_dtype */
    uint8_t rank;                  /* of an array */
    uint8_t element_bits;          /* from the layout's E(n); 0: as the type says */
    uint8_t has_layout;            /* minor_to_major was written */
    uint16_t depth;                /* levels of tuples */
    int32_t memory_space;          /* from S(n): raw, its meaning is the target's; 0: default */
    uint32_t nelements;            /* of a tuple or buffer */
    uint32_t leaves;               /* arrays in it, at any depth; 1 for an array */
    uint64_t bounded;              /* bit i: dimension i was written `<=n`; dims[i] is n */
    const int64_t *dims;           /* rank; -1 for `?` */
    const uint8_t *minor_to_major; /* rank; fastest first; row major where none was written */
    const struct hlo_shape *const *elements;
    int64_t count;     /* elements of an array; of a tuple: of all its leaves */
    int64_t bytes;     /* of an array; of a tuple: of all its leaves. No tile padding */
    struct str text;   /* as written */
    struct str layout; /* the properties after ':', or empty */
};

/* Attribute keys that somebody decodes; the callee keys name computations. */
// clang-format off
#define HLO_KEYS(X) \
    X(BACKEND_CONFIG, "backend_config", 0) X(BATCH_GROUP_COUNT, "batch_group_count", 0) \
    X(BODY, "body", 1) X(BRANCH_COMPUTATIONS, "branch_computations", 1) \
    X(CALLED_COMPUTATIONS, "called_computations", 1) X(CALLS, "calls", 1) \
    X(CHANNEL_ID, "channel_id", 0) X(CONDITION, "condition", 1) \
    X(CUSTOM_CALL_TARGET, "custom_call_target", 0) X(DEVICE_IDS, "device_ids", 0) \
    X(DIM_LABELS, "dim_labels", 0) X(DIMENSIONS, "dimensions", 0) X(DIRECTION, "direction", 0) \
    X(ENTRY_COMPUTATION_LAYOUT, "entry_computation_layout", 0) \
    X(FALSE_COMPUTATION, "false_computation", 1) X(FEATURE_GROUP_COUNT, "feature_group_count", 0) \
    X(FFT_LENGTH, "fft_length", 0) X(FRONTEND_ATTRIBUTES, "frontend_attributes", 0) \
    X(INDEX, "index", 0) X(INPUT_OUTPUT_ALIAS, "input_output_alias", 0) \
    X(IS_SCHEDULED, "is_scheduled", 0) X(K, "k", 0) X(KIND, "kind", 0) \
    X(LHS_BATCH_DIMS, "lhs_batch_dims", 0) X(LHS_CONTRACTING_DIMS, "lhs_contracting_dims", 0) \
    X(LHS_RAGGED_DIMS, "lhs_ragged_dims", 0) X(LITERAL, "literal", 0) X(METADATA, "metadata", 0) \
    X(NUM_PARTITIONS, "num_partitions", 0) X(REPLICA_COUNT, "replica_count", 0) \
    X(REPLICA_GROUPS, "replica_groups", 0) X(RHS_BATCH_DIMS, "rhs_batch_dims", 0) \
    X(RHS_CONTRACTING_DIMS, "rhs_contracting_dims", 0) X(RHS_GROUP_DIMS, "rhs_group_dims", 0) \
    X(SCATTER_COMPUTATION, "scatter", 1) X(SELECT_COMPUTATION, "select", 1) X(SHARDING, "sharding", 0) \
    X(SOURCE_TARGET_PAIRS, "source_target_pairs", 0) X(TO_APPLY, "to_apply", 1) \
    X(TRUE_COMPUTATION, "true_computation", 1) \
    X(USE_GLOBAL_DEVICE_IDS, "use_global_device_ids", 0) X(WINDOW, "window", 0)
// clang-format on
enum hlo_key {
    HLO_KEY_OTHER,
    HLO_KEY_LITERAL_TEXT, /* what stands in constant(...); has no key in the text */
    HLO_KEY_OPCODE,       /* an opcode as written, where it is none of the table */
#define X(id, name, callee) HLO_KEY_##id,
    HLO_KEYS(X)
#undef X
        HLO_KEY_COUNT
};

/* A slice of the module's text: from there n bytes. */
struct hlo_attr {
    uint32_t key_at, at, n;
    uint16_t key_n, key; /* enum hlo_key */
};

struct hlo_callee {
    uint32_t computation, key; /* index in the module; the attribute that named it */
};

enum hlo_instr_flag {
    HLO_INSTR_HAS_VALUE = 1 << 0, /* value is set */
    HLO_INSTR_ANONYMOUS = 1 << 1, /* was written inside its user's operands, without a name */
    HLO_INSTR_SHAPELESS = 1 << 2, /* its shape was not written but inferred */
};

struct hlo_instr {
    const struct hlo_shape *shape;
    int64_t value;            /* parameter number, tuple index, scalar integer constant */
    uint32_t name_at, name_n; /* in the text; name_n = 0: anonymous, name_at is its place */
    uint32_t operands, attrs, callees; /* where its own begin in the computation's arrays */
    uint32_t noperands;
    uint16_t nattrs, ncallees;
    uint16_t opcode, flags; /* enum hlo_opcode, enum hlo_instr_flag */
};

struct hlo_computation {
    struct str name;
    const struct hlo_instr *instrs;
    const uint32_t *operands; /* indices of instrs, each less than its user's */
    const struct hlo_attr *attrs;
    const struct hlo_callee *callees;
    uint32_t n, root, nparameters;
    struct str signature; /* "(a: f32[]) -> f32[]" as written, or empty */
    struct str thread;    /* execution_thread, quotes included, or empty */
};

struct hlo_module {
    const char *text; /* the file's; offsets count from here */
    struct str name;
    struct str stack_tables; /* FileNames … StackFrames as written, or empty */
    const struct hlo_attr *attrs;
    const struct hlo_computation *computations;
    uint32_t nattrs, n, entry;
    bool has_header;              /* without one the name is "module_<entry>" */
    int64_t replicas, partitions; /* 1 where the header does not say */
};

struct hlo_file {
    const char *name;
    const char *text;
    size_t n;
    const struct hlo_module *modules;
    size_t nmodules;
    size_t memory_bytes; /* allocated for all of this, beside the text; at its peak */
};

/* Maps and reads a file; several modules stand between lines `// -----`.
 * On success *out is returned, free with hlo_free. Errors: `name:line:column: expected …, found …`.
 */
int hlo_load(const char *path, struct hlo_file **out, struct err *e) MUST_USE;

/* The same from memory; text[n] must be 0, and the text must outlive the file. name: for messages.
 */
int hlo_parse(const char *text, size_t n, const char *name, struct hlo_file **out,
              struct err *e) MUST_USE;
void hlo_free(struct hlo_file *f);

/* HLO text of a module, with which hlo_parse gives the same module again. Attributes, literals and
 * signatures as they were written. */
void hlo_print(const struct hlo_module *m, struct buf *out);

/* ---- names and shapes ---- */
const char *hlo_opcode_name(enum hlo_opcode op); /* "unknown" for HLO_UNKNOWN */
enum hlo_class hlo_opcode_class(enum hlo_opcode op);
enum hlo_opcode hlo_opcode_find(const char *name, size_t n);
const char *hlo_dtype_name(enum hlo_dtype t);

bool hlo_shape_same(const struct hlo_shape *a, const struct hlo_shape *b); /* but for layouts */

/* Bytes with the tiles of the layout padded (the footprint on a TPU); without tiles as `bytes`.
 * -1 when unknown or beyond 63 bits. */
int64_t hlo_shape_padded_bytes(const struct hlo_shape *s);

/* ---- instructions ---- */
const struct hlo_instr *hlo_operand(const struct hlo_computation *c, const struct hlo_instr *i,
                                    uint32_t n);
struct str hlo_instr_name(const struct hlo_module *m, const struct hlo_instr *i);
/* The opcode as the text has it: "copy-start", "custom-call-start", "frobnicate". */
struct str hlo_instr_opcode(const struct hlo_module *m, const struct hlo_computation *c,
                            const struct hlo_instr *i);
/* The op that runs: of an async-start the wrapped one, of X-start X, else its own. */
enum hlo_opcode hlo_instr_wrapped(const struct hlo_module *m, const struct hlo_computation *c,
                                  const struct hlo_instr *i);
/* Is the attribute there; its text in *value (which may be NULL). */
bool hlo_attr(const struct hlo_module *m, const struct hlo_computation *c,
              const struct hlo_instr *i, enum hlo_key key, struct str *value);
/* The computation that an attribute names, UINT32_MAX: none. */
uint32_t hlo_callee(const struct hlo_computation *c, const struct hlo_instr *i, enum hlo_key key);

/* ---- attributes decoded ---- */
bool hlo_int(struct str s, int64_t *v);
/* "{1,2}" (at most max); false when it is none. */
bool hlo_ints(struct str s, int64_t *v, size_t max, size_t *n);
struct str hlo_unquote(struct str s); /* without the quotes; escapes stay */

struct hlo_window_dim {
    int64_t size, stride, pad_low, pad_high, lhs_dilate, rhs_dilate;
    bool reversed;
};
bool hlo_window(struct str s, struct hlo_window_dim *dims, size_t max, size_t *n);

/* Where batch, feature and spatial dimensions sit: b01f_01io->b01f. */
struct hlo_dim_labels {
    int batch, feature, kernel_in, kernel_out, out_batch, out_feature;
    int spatial[HLO_RANK_MAX], kernel_spatial[HLO_RANK_MAX], out_spatial[HLO_RANK_MAX];
    int nspatial;
};
bool hlo_dim_labels(struct str s, struct hlo_dim_labels *l);

/* Entries of input_output_alias. */
int64_t hlo_alias_entries(const struct hlo_module *m);

/* ---- collectives ---- */
enum hlo_groups_form { HLO_GROUPS_ABSENT, HLO_GROUPS_LIST, HLO_GROUPS_IOTA, HLO_GROUPS_MESH };
struct hlo_groups {
    enum hlo_groups_form form;
    int64_t groups;         /* 0: none was listed, all participants are one group */
    int64_t size, max_size; /* of the first and of the largest group */
    struct str text;
    /* IOTA and MESH: iota over dims, transposed by perm, cut into rows of size */
    int ndims;
    int64_t dims[HLO_RANK_MAX];
    int perm[HLO_RANK_MAX];
    struct str device_ids; /* MESH: what the iota indexes, or empty */
};
int hlo_groups(const struct hlo_module *m, const struct hlo_computation *c,
               const struct hlo_instr *i, struct hlo_groups *g, struct err *e) MUST_USE;
/* The ids, group by group, at most max; sizes of ragged lists are not told. Returns how many there
 * are, -1 when the form cannot be enumerated. */
int64_t hlo_groups_ids(const struct hlo_groups *g, int64_t *ids, size_t max);

/* source_target_pairs: how many; at most max into pairs. -1: none or malformed. */
int64_t hlo_pairs(struct str s, int64_t (*pairs)[2], size_t max);

/* Participants of a collective without groups, by what its ids are (channel, global ids). */
int64_t hlo_participants(const struct hlo_module *m, const struct hlo_computation *c,
                         const struct hlo_instr *i);

/* Are shapes those of one device or of all? From the shardings and collectives, never certain. */
enum hlo_scope {
    HLO_SCOPE_SINGLE,     /* one device: both */
    HLO_SCOPE_PER_DEVICE, /* after partitioning */
    HLO_SCOPE_GLOBAL,     /* before: tiled shardings and no collective */
    HLO_SCOPE_MIXED,      /* tiled shardings around collectives: manual regions */
};
enum hlo_scope hlo_scope(const struct hlo_module *m);
const char *hlo_scope_name(enum hlo_scope s);

#endif
