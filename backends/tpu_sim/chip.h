/* A chip is data: one file of figures, each with value, source and uncertainty.
 *
 * backends/tpu_sim/chips/NAME.json holds {"name","title","parameters":{KEY:{"value","source",
 * "uncertainty",…}}} (schemas/chip.json). This header is the one list of keys: the struct, the
 * reader's table, the `-o chip.KEY=…` overrides and the help all come from it. Figures are of one
 * physical chip unless the help says otherwise; a device is what JAX calls a device (7x: two a
 * chip). No code looks at a chip's name or generation to decide a time. */
#ifndef BACKENDS_TPU_SIM_CHIP_H
#define BACKENDS_TPU_SIM_CHIP_H

#include "harness/core/err.h"
#include "harness/core/options.h"

#include <jansson.h>
#include <stdint.h>

/* X(key, type, unit, min, max, help) */
// clang-format off
#define CHIP_PARAMETERS(X)                                                                         \
    X(generation, I64, NULL, 1, 99, "TPU generation")                                              \
    X(devices, I64, NULL, 1, 16, "JAX devices a chip (separate cores; a megacore counts one)")     \
    X(bf16_tflops, F64, "TFLOP/s", 0.001, 1e6, "peak dense bf16")                                  \
    X(int8_tops, F64, "TOP/s", 0, 1e6, "peak dense int8; 0 = runs at the bf16 rate")               \
    X(fp8_tflops, F64, "TFLOP/s", 0, 1e6, "peak dense fp8; 0 = runs at the bf16 rate")             \
    X(mxus, I64, NULL, 1, 1024, "matrix units")                                                    \
    X(mxu_dim, I64, NULL, 8, 4096, "rows and columns of a matrix unit: padding of k and n")        \
    X(weight_rows, I64, NULL, 1, 64, "weight rows a matrix unit loads a cycle")                    \
    X(row_pad, I64, NULL, 1, 256, "sublane padding of 16-bit rows")                                \
    X(clock_ghz, F64, "GHz", 0.01, 100, "clock of the vector unit and of MXU fill")                \
    X(vpu_lanes, I64, NULL, 1, 1e7, "32-bit vector operations a cycle, all cores and ALUs")        \
    X(vmem_mib, F64, "MiB", 0.1, 1e5, "vector memory")                                             \
    X(hbm_gib, F64, "GiB", 0.1, 1e5, "HBM capacity")                                               \
    X(hbm_gbps, F64, "GB/s", 1, 1e6, "peak HBM bandwidth")                                         \
    X(ici_axes, I64, NULL, 1, 6, "torus axes")                                                     \
    X(ici_link_gbps, F64, "GB/s", 0.1, 1e5, "one link, one way, as software reaches it")           \
    X(core_gbps, F64, "GB/s", 0, 1e6, "between two cores of a chip, one way; 0 = one device a chip") \
    X(ici_wrap, I64, NULL, 1, 1024, "an axis wraps when its length is a multiple of this")         \
    X(ici_wrap_all, I64, NULL, 0, 1, "1: axes wrap only when every axis is such a multiple")       \
    X(ici_hop_us, F64, "us", 0, 1000, "latency of one hop")                                        \
    X(collective_us, F64, "us", 0, 1000, "fixed cost of one collective")                           \
    X(slice_chips, I64, NULL, 1, 1e6, "largest slice")                                             \
    X(dcn_gbps, F64, "GB/s", 0, 1e5, "data-centre network, one way, a chip")                       \
    X(host_gbps, F64, "GB/s", 0, 1e5, "host link, one way, a chip")                                \
    X(kernel_us, F64, "us", 0, 1000, "fixed cost of a kernel on the device")                       \
    X(mxu_eff, F64, NULL, 0.01, 1, "share of the peak a long matmul sustains")                     \
    X(grouped_eff, F64, NULL, 0.01, 1, "share of the peak a grouped (expert) matmul sustains")     \
    X(gather_eff, F64, NULL, 0.01, 1, "share of HBM bandwidth when rows are gathered or scattered") \
    X(hbm_eff, F64, NULL, 0.01, 1, "share of HBM bandwidth a long stream sustains")                \
    X(fill_mb, F64, "MB", 0, 1e4, "bytes a device moves before and after its kernel's overlapped loop") \
    X(f16_ops, F64, NULL, 0, 1000, "vector operations to convert an IEEE half; 0 = native")        \
    X(tile_us, F64, "us", 0, 1000, "cost of one step of a hand-tiled kernel's grid")               \
    X(attn_mxu_eff, F64, NULL, 0.01, 1, "share of the peak of a tuned prefill attention kernel")   \
    X(attn_hbm_eff, F64, NULL, 0.01, 1, "share of HBM bandwidth of paged decode attention")        \
    X(attn_seq_us, F64, "us", 0, 1000, "cost of one sequence in a decode attention kernel, a device") \
    X(plain_seq_us, F64, "us", 0, 1000, "the same when attention is plain array code")             \
    X(train_eff, F64, NULL, 0.01, 1, "share of a training step's compute time spent in kernels: the rest is layout copies, gaps, stragglers") \
    X(idle_w, F64, "W", 0, 1e5, "least chip power; 0 = unknown")                                   \
    X(max_w, F64, "W", 0, 1e5, "greatest chip power; 0 = unknown")
// clang-format on

#define CHIP_TYPE_I64 int64_t
#define CHIP_TYPE_F64 double

enum { CHIP_NAME_MAX = 64 };

struct chip {
    char name[CHIP_NAME_MAX];
#define CHIP_FIELD(key, type, unit, min, max, help) CHIP_TYPE_##type key;
    CHIP_PARAMETERS(CHIP_FIELD)
#undef CHIP_FIELD
};

extern const struct option chip_options[]; /* rows of the above over struct chip; ends with {0} */
extern const size_t chip_option_count;

/* One override: key without "chip.", value as typed; "1.5x" is one and a half times what the file says. */
struct chip_override {
    const char *key, *value;
};

/* name: one of backends/tpu_sim/chips ("v6e"), or a path (contains '/' or ends in .json).
 * effective: NULL or receives a new reference to the file's content with the overrides written into
 * it (uncertainty "override"): what a record digests. Overrides change the name too, as in
 * "v6e+hbm_gbps=3276", so that such a run is never taken for one of the chip itself. */
int chip_load(const char *name, const struct chip_override *overrides, size_t noverrides,
              struct chip *c, json_t **effective, struct err *e) MUST_USE;

/* The same from a parsed document. file: for messages. json is changed by the overrides. */
int chip_from_json(json_t *json, const char *file, const struct chip_override *overrides,
                   size_t noverrides, struct chip *c, struct err *e) MUST_USE;

/* Arithmetic types of weights, caches and matrix operations. */
enum num { NUM_BF16, NUM_INT8, NUM_FP8, NUM_F32, NUM_COUNT };
extern const char *const num_names[]; /* NULL-terminated, in enum order */
double num_bytes(enum num n);
/* Peak of one chip, FLOP/s, with operands of this type (narrow types without a listed peak: bf16).
 */
double chip_peak_flops(const struct chip *c, enum num n);

#endif
