/* The tpu-sim backend: a TPU slice and a serving engine (or a training step) in virtual time.
 * This file joins options, chip, model and engines to the backend's slots; what things cost is in
 * kernel.c, collective.c, step.c and train.c, what runs when in engine.c. */
#include "backends/tpu_sim/tpu_sim.h"

#include "backends/backend.h"
#include "backends/tpu_sim/chip.h"
#include "backends/tpu_sim/engine.h"
#include "backends/tpu_sim/mesh.h"
#include "backends/tpu_sim/step.h"
#include "backends/tpu_sim/train.h"
#include "harness/core/buf.h"
#include "harness/core/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Overrides stay text until the chip is read: NULL = as the file says. */
struct chip_texts {
#define TEXT_FIELD(key, type, unit, min, max, help) const char *key;
    CHIP_PARAMETERS(TEXT_FIELD)
#undef TEXT_FIELD
};

struct sim_options {
    const char *chip, *topology, *mesh;
    int64_t chips, slices, tensor, data, expert;
    int weights, kv, math, attention, buckets, remat;
    int64_t max_batched_tokens, max_seqs, block_size, kv_blocks, max_context, host_ns;
    double hbm_share, overlap, optimizer_bytes;
    bool async_scheduling, prefix_cache;
    struct chip_texts text;
};

static const char *const attention_names[] = {"paged", "plain", NULL};
static const char *const bucket_names[] = {"pow2", "none", NULL};

#define AT(f) offsetof(struct sim_options, f)
#define OVERRIDE_ROW(key, type, unit, min, max, help)                                              \
    {"chip." #key, OPT_STR, AT(text.key), unit, 0, 0, NULL, NULL, 0, help},
// clang-format off
static const struct option sim_table[] = {
    {"chip", OPT_STR, AT(chip), .def = "v6e", .help = "a chip that ships (v3 v4 v5e v5p v6e 7x) or a chip file's path"},
    {"chips", OPT_I64, AT(chips), "chips", 1, 1048576, .def = "1", .help = "physical chips of one slice"},
    {"topology", OPT_STR, AT(topology), .help = "the slice's box, as 2x4; default: the most nearly cubical"},
    {"slices", OPT_I64, AT(slices), NULL, 1, 4096, .def = "1", .help = "training: slices joined by the data-centre network"},
    {"tensor", OPT_I64, AT(tensor), "devices", 0, 65536, .def = "0", .help = "serving: devices one layer is split over; 0 = all of a replica"},
    {"data", OPT_I64, AT(data), NULL, 1, 4096, .def = "1", .help = "serving: replicas, each with its share of the chips"},
    {"expert", OPT_I64, AT(expert), "devices", 0, 65536, .def = "0", .help = "serving: devices that whole experts are spread over; 0 = every expert is sliced"},
    {"mesh", OPT_STR, AT(mesh), .help = "training: devices along each axis, as data:4,fsdp:8,tensor:2; default: fsdp over all; auto: the fastest that fits (auto,tensor:8 keeps an axis)"},
    {"weights", OPT_ENUM, AT(weights), .choices = num_names, .def = "bf16", .help = "type of stored weights"},
    {"kv", OPT_ENUM, AT(kv), .choices = num_names, .def = "bf16", .help = "type of the KV cache"},
    {"math", OPT_ENUM, AT(math), .choices = num_names, .def = "bf16", .help = "type of matrix products"},
    {"attention", OPT_ENUM, AT(attention), .choices = attention_names, .def = "paged", .help = "tuned paged kernels, or plain array code"},
    {"buckets", OPT_ENUM, AT(buckets), .choices = bucket_names, .def = "pow2", .help = "sizes a step's tokens are padded to"},
    {"max_batched_tokens", OPT_I64, AT(max_batched_tokens), "tokens", 1, 1048576, .def = "2048", .help = "token budget of a step"},
    {"max_seqs", OPT_I64, AT(max_seqs), NULL, 1, 1048576, .def = "256", .help = "sequences that run at once, a replica"},
    {"block_size", OPT_I64, AT(block_size), "tokens", 1, 65536, .def = "128", .help = "tokens of a KV page"},
    {"kv_blocks", OPT_I64, AT(kv_blocks), NULL, 0, 1e9, .def = "0", .help = "KV pages of a replica; 0 = what HBM holds beside the weights"},
    {"hbm_share", OPT_F64, AT(hbm_share), NULL, 0.01, 1, .def = "0.9", .help = "share of HBM for weights and KV cache"},
    {"max_context", OPT_I64, AT(max_context), "tokens", 0, 1e9, .def = "0", .help = "prompt and answer together; 0 = the model's"},
    {"prefix_cache", OPT_BOOL, AT(prefix_cache), .def = "off", .help = "keep idle sessions' KV blocks for their next turn, and shared prefixes for all"},
    {"host_overhead", OPT_DURATION, AT(host_ns), "s", .def = "2ms", .help = "host work of one engine step"},
    {"async_scheduling", OPT_BOOL, AT(async_scheduling), .def = "on", .help = "host work hides behind the device"},
    {"remat", OPT_ENUM, AT(remat), .choices = train_remat_names, .def = "full", .help = "training: what is recomputed"},
    {"comm_overlap", OPT_F64, AT(overlap), NULL, 0, 1, .def = "0.9", .help = "training: share of hideable communication that hides"},
    {"optimizer_bytes", OPT_F64, AT(optimizer_bytes), "B", 0, 1000, .def = "20", .help = "training: traffic a parameter of the optimizer step"},
    CHIP_PARAMETERS(OVERRIDE_ROW)
    {0},
};
// clang-format on

struct sim {
    struct backend base;
    const struct sim_options *o; /* borrowed */
    const struct workload *workload;
    struct event_sink *sink;
    struct chip chip;
    json_t *chip_json;
    int64_t now_ns, engine_event_ns;
    /* serving */
    struct step_model model;
    struct mesh_search search; /* mesh=auto */
    char mesh[96];
    struct engine_options engine_options;
    struct engine **engine; /* one a replica */
    int64_t engines;
    struct completion_queue done;
    /* training */
    struct train_options train;
    struct train_step step;
    struct cost busy;
};

static size_t overrides(const struct sim_options *o, struct chip_override *out) {
    size_t n = 0;
    const struct chip_texts *t = &o->text;
#define TEXT_OVERRIDE(key, type, unit, min, max, help)                                             \
    if (t->key)                                                                                    \
        out[n++] = (struct chip_override){#key, t->key};
    CHIP_PARAMETERS(TEXT_OVERRIDE)
#undef TEXT_OVERRIDE
    return n;
}

/* The least power-of-two multiple of the chips at which the weights leave room for a sequence. */
static int64_t chips_that_fit(const struct sim *s, const struct step_options *so, double need) {
    struct step_options o = *so;
    for (int i = 0; i < 12; i++) {
        o.chips *= 2;
        o.tensor = 0;
        o.topology = NULL;
        struct step_model m;
        struct err ignored = {0};
        if (step_init(&m, &s->chip, &s->workload->model, &o, &ignored))
            continue;
        bool fits = step_kv_room_bytes(&m, s->o->hbm_share) >= need;
        step_release(&m);
        if (fits)
            return o.chips;
    }
    return 0;
}

static int size_kv(struct sim *s, const struct step_options *so, struct err *e) {
    double page = s->model.kv_token_bytes * (double)s->o->block_size;
    double room = step_kv_room_bytes(&s->model, s->o->hbm_share);
    if (s->o->kv_blocks > 0) {
        s->engine_options.kv_blocks = s->o->kv_blocks;
        if (room >= 0)
            return 0;
    } else if (room >= page) {
        double blocks = room / page;
        s->engine_options.kv_blocks = blocks < 1e9 ? (int64_t)blocks : 1000000000;
        return 0;
    }
    double lack = s->o->kv_blocks > 0 ? -room : page - room, gib = 1073741824.0;
    int64_t fit = chips_that_fit(s, so, page);
    char advice[96] = "no slice of this chip within 4096 times as many holds it";
    if (fit)
        snprintf(advice, sizeof advice, "%" PRId64 " chips would fit (-o chips=%" PRId64 ")",
                 fit * s->o->data, fit * s->o->data);
    return err_set(e, ASSAY_EINPUT,
                   "model '%s' with %s weights does not fit on %" PRId64
                   " %s: each device needs %.2f GiB of "
                   "weights and has %.2f GiB (%.0f%% of HBM), %.2f GiB short; %s",
                   s->workload->model.name, num_names[s->o->weights], s->o->chips, s->chip.name,
                   s->model.weight_bytes / gib, s->model.device.hbm_bytes * s->o->hbm_share / gib,
                   100 * s->o->hbm_share, lack / gib, advice);
}

static int open_serving(struct sim *s, struct err *e) {
    const struct sim_options *o = s->o;
    if (o->chips % o->data)
        return err_set(e, ASSAY_EUSAGE,
                       "-o data: %" PRId64 " replicas do not share %" PRId64 " chips evenly",
                       o->data, o->chips);
    struct step_options so = {
        .chips = o->chips / o->data,
        .tensor = o->tensor,
        .expert = o->expert,
        .topology = o->data == 1 ? o->topology : NULL,
        .weights = (enum num)o->weights,
        .kv = (enum num)o->kv,
        .math = (enum num)o->math,
        .attention = (enum attention_kernel)o->attention,
        .block_size = o->block_size,
    };
    int rc = step_init(&s->model, &s->chip, &s->workload->model, &so, e);
    if (rc)
        return rc;
    int64_t devices = so.chips * s->chip.devices;
    if (s->model.tensor != devices)
        return err_set(e, ASSAY_EUSAGE,
                       "-o tensor: %" PRId64 " of the %" PRId64
                       " devices of a replica would idle; -o data=%" PRId64
                       " makes replicas of them",
                       devices - s->model.tensor, devices, o->data * devices / s->model.tensor);
    if (s->model.tensor % s->model.expert)
        return err_set(e, ASSAY_EUSAGE,
                       "-o expert: %" PRId64 " does not divide the %" PRId64
                       " devices of a replica",
                       o->expert, devices);
    s->engine_options = (struct engine_options){
        .max_batched_tokens = o->max_batched_tokens,
        .max_seqs = o->max_seqs,
        .block_size = o->block_size,
        .max_context = o->max_context ? o->max_context : s->workload->model.max_context,
        .host_ns = o->host_ns,
        .async_scheduling = o->async_scheduling,
        .prefix_cache = o->prefix_cache,
        .buckets = (enum engine_buckets)o->buckets,
    };
    if ((rc = size_kv(s, &so, e)))
        return rc;
    s->engine = calloc((size_t)o->data, sizeof *s->engine);
    if (!s->engine)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (; s->engines < o->data; s->engines++)
        if ((rc = engine_new(&s->model, &s->engine_options, s->sink, &s->done,
                             &s->engine[s->engines], e)))
            return rc;
    return 0;
}

/* "auto", or "auto,tensor:8": the fastest that fits, with the axes that are given. */
static int choose_mesh(struct sim *s, const char *text, struct err *e) {
    if (strncmp(text, "auto", 4) || (text[4] && text[4] != ','))
        return train_mesh_parse(text, &s->train, e);
    int rc = train_mesh_parse(text + 4 + (text[4] == ','), &s->train, e);
    if (!rc)
        rc = mesh_search(&s->chip, &s->workload->model, &s->train, &s->search, e);
    if (rc)
        return rc;
    const struct mesh_row *best = &s->search.row[0];
    s->train.data = best->data;
    s->train.fsdp = best->fsdp;
    s->train.tensor = best->tensor;
    s->train.expert = best->expert;
    s->train.context = best->context;
    mesh_print(best, s->mesh, sizeof s->mesh);
    return 0;
}

static int open_training(struct sim *s, struct err *e) {
    const struct sim_options *o = s->o;
    s->train = (struct train_options){
        .chips = o->chips,
        .slices = o->slices,
        .topology = o->topology,
        .math = (enum num)o->math,
        .remat = (enum train_remat)o->remat,
        .overlap = o->overlap,
        .optimizer_bytes = o->optimizer_bytes,
        .global_batch = s->workload->global_batch,
        .seq_len = s->workload->seq_len,
    };
    int rc = o->mesh ? choose_mesh(s, o->mesh, e) : 0;
    return rc ? rc : train_run(&s->chip, &s->workload->model, &s->train, &s->step, e);
}

static void sim_close(struct backend *b) {
    struct sim *s = (struct sim *)b;
    if (!s)
        return;
    for (int64_t i = 0; i < s->engines; i++)
        engine_free(s->engine[i]);
    free(s->engine);
    free(s->done.c);
    json_decref(s->chip_json);
    step_release(&s->model);
    mesh_search_release(&s->search);
    free(s);
}

static int sim_open(const struct backend_open_args *args, struct backend **out, struct err *e) {
    *out = NULL;
    if (!args->workload->has_model)
        return err_set(e, ASSAY_EINPUT, "backend 'tpu-sim' needs a workload that names a model");
    struct sim *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->base.ops = &backend_tpu_sim;
    s->o = args->options;
    s->workload = args->workload;
    s->sink = args->sink;
    s->engine_event_ns = -NS_PER_MS;
    struct chip_override ov[sizeof(struct chip_texts) / sizeof(const char *)];
    int rc = chip_load(s->o->chip, ov, overrides(s->o, ov), &s->chip, &s->chip_json, e);
    if (!rc)
        rc = args->workload->kind == WORKLOAD_TRAINING ? open_training(s, e) : open_serving(s, e);
    if (rc) {
        sim_close(&s->base);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static int64_t sim_now(struct backend *b) {
    return ((struct sim *)b)->now_ns;
}

static int sim_submit(struct backend *b, const struct request *r, struct completion *c,
                      struct err *e) {
    struct sim *s = (struct sim *)b;
    if (!s->engines)
        return err_set(e, ASSAY_EUSAGE, "backend 'tpu-sim' was opened for training");
    event_put(s->sink, s->now_ns, EVENT_SENT, r->id, 0, 0);
    int64_t best = 0; /* a session stays where its blocks are; others go where least is in flight */
    if (r->session != REQUEST_NO_SESSION)
        best = (int64_t)(r->session % (uint64_t)s->engines);
    else
        for (int64_t i = 1; i < s->engines; i++)
            if (engine_in_flight(s->engine[i]) < engine_in_flight(s->engine[best]))
                best = i;
    if (!engine_fits(s->engine[best], r)) {
        event_put(s->sink, s->now_ns, EVENT_FAIL, r->id, FAIL_REJECTED, 0);
        *c = (struct completion){
            .request = r->id, .time_ns = s->now_ns, .fail_class = FAIL_REJECTED};
        return SUBMIT_DONE;
    }
    int rc = engine_submit(s->engine[best], r, e);
    return rc ? rc : SUBMIT_QUEUED;
}

/* The engine whose step ends first; lowest index at a tie. */
static struct engine *next_end(struct sim *s, int64_t *at) {
    struct engine *first = NULL;
    *at = INT64_MAX;
    for (int64_t i = 0; i < s->engines; i++) {
        int64_t t = engine_step_end(s->engine[i]);
        if (t < *at) {
            *at = t;
            first = s->engine[i];
        }
    }
    return first;
}

/* All replicas together, at most once a millisecond. */
static void engine_event(struct sim *s) {
    int64_t waiting = 0, running = 0, kv_tokens = 0;
    for (int64_t i = 0; i < s->engines; i++) {
        struct engine_counters c;
        engine_count(s->engine[i], &c);
        waiting += c.waiting;
        running += c.running;
        kv_tokens += c.kv_tokens;
    }
    s->engine_event_ns = s->now_ns;
    event_put(s->sink, s->now_ns, EVENT_ENGINE, (uint64_t)waiting, running, kv_tokens);
}

static int sim_wait(struct backend *b, int64_t until_ns, struct completion *c, int max, int *n,
                    const volatile int *stop, struct err *e) {
    struct sim *s = (struct sim *)b;
    for (;;) {
        *n = completion_drain(&s->done, c, max);
        if (*n > 0)
            return 0;
        if (*stop)
            return err_set(e, ASSAY_EINTERRUPTED, "interrupted");
        for (int64_t i = 0; i < s->engines; i++)
            if (engine_step_end(s->engine[i]) == INT64_MAX && engine_has_work(s->engine[i]))
                engine_begin(s->engine[i], s->now_ns);
        int64_t at;
        struct engine *g = next_end(s, &at);
        if (!g || at > until_ns) {
            if (until_ns != INT64_MAX && until_ns > s->now_ns)
                s->now_ns = until_ns;
            return 0;
        }
        s->now_ns = at;
        engine_end(g);
        if (at - s->engine_event_ns >= NS_PER_MS)
            engine_event(s);
    }
}

static int64_t sim_next(struct backend *b) {
    struct sim *s = (struct sim *)b;
    if (s->done.n > 0)
        return s->now_ns;
    int64_t at;
    next_end(s, &at);
    for (int64_t i = 0; i < s->engines; i++)
        if (engine_step_end(s->engine[i]) == INT64_MAX && engine_has_work(s->engine[i]))
            at = s->now_ns;
    return at;
}

static void sim_cancel(struct backend *b, uint64_t request) {
    struct sim *s = (struct sim *)b;
    for (int64_t i = 0; i < s->engines; i++)
        if (engine_cancel(s->engine[i], request, s->now_ns))
            return;
}

static int sim_shares(struct backend *b, struct backend_share *out, int max) {
    struct sim *s = (struct sim *)b;
    struct cost busy = s->busy;
    for (int64_t i = 0; i < s->engines; i++) {
        struct engine_counters c;
        engine_count(s->engine[i], &c);
        cost_add(&busy, &c.busy, 1);
    }
    double total = cost_total(&busy);
    int n = 0;
    for (int i = 0; i < BOUND_COUNT && n < max && total > 0; i++) {
        if (busy.s[i] <= 0)
            continue;
        snprintf(out[n].resource, sizeof out[n].resource, "%s", bound_names[i]);
        out[n++].share = busy.s[i] / total;
    }
    return n;
}

static int sim_train(struct backend *b, uint64_t first, int64_t steps, struct err *e) {
    struct sim *s = (struct sim *)b;
    if (s->engines)
        return err_set(e, ASSAY_EUSAGE, "backend 'tpu-sim' was opened for serving");
    int64_t ns = (int64_t)(s->step.s * 1e9 + 0.5);
    for (int64_t i = 0; i < steps; i++) {
        event_put(s->sink, s->now_ns, EVENT_ISSUE, first + (uint64_t)i, 0, 0);
        s->now_ns += ns > 0 ? ns : 1;
        event_put(s->sink, s->now_ns, EVENT_STEP, first + (uint64_t)i,
                  s->train.global_batch * s->train.seq_len, s->train.global_batch);
        cost_add(&s->busy, &s->step.by, 1);
    }
    return 0;
}

/* ---- what the record says ---- */

static json_t *serving_details(const struct sim *s) {
    char topology[64];
    topology_print(&s->model.topology, topology, sizeof topology);
    const struct engine_options *o = &s->engine_options;
    struct engine_counters c = {0};
    for (int64_t i = 0; i < s->engines; i++) {
        struct engine_counters one;
        engine_count(s->engine[i], &one);
        c.steps += one.steps;
        c.evictions += one.evictions;
        c.free_blocks += one.free_blocks;
        c.idle_blocks += one.idle_blocks;
        c.preemptions += one.preemptions;
        c.cached_tokens += one.cached_tokens;
        c.scheduled_tokens += one.scheduled_tokens;
        c.padded_tokens += one.padded_tokens;
    }
    return json_pack(
        "{s:{s:s,s:I,s:I,s:I,s:I},s:{s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:s},s:{s:f,s:f,s:f},s:{s:I,s:"
        "I,s:I,s:I,s:I,s:I,s:I,s:I}}",
        "parallelism", "topology", topology, "replicas", (json_int_t)s->engines, "tensor",
        (json_int_t)s->model.tensor, "expert", (json_int_t)s->model.expert, "devices",
        (json_int_t)(s->o->chips * s->chip.devices), "engine", "max_batched_tokens",
        (json_int_t)o->max_batched_tokens, "max_seqs", (json_int_t)o->max_seqs, "block_size",
        (json_int_t)o->block_size, "kv_blocks", (json_int_t)o->kv_blocks, "max_context",
        (json_int_t)o->max_context, "host_overhead_ns", (json_int_t)o->host_ns, "async_scheduling",
        o->async_scheduling, "prefix_cache", o->prefix_cache, "buckets", bucket_names[o->buckets],
        "device", "weight_bytes", s->model.weight_bytes, "kv_token_bytes", s->model.kv_token_bytes,
        "hbm_bytes", s->model.device.hbm_bytes, "counters", "steps", (json_int_t)c.steps,
        "preemptions", (json_int_t)c.preemptions, "cached_tokens", (json_int_t)c.cached_tokens,
        "scheduled_tokens", (json_int_t)c.scheduled_tokens, "padded_tokens",
        (json_int_t)c.padded_tokens, "evictions", (json_int_t)c.evictions, "free_blocks",
        (json_int_t)c.free_blocks, "idle_blocks", (json_int_t)c.idle_blocks);
}

static json_t *training_details(const struct sim *s) {
    const struct train_step *t = &s->step;
    return json_pack("{s:{s:s,s:s,s:I},s:{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}}", "parallelism",
                     "mesh", *s->mesh ? s->mesh : s->o->mesh ? s->o->mesh : "fsdp", "remat",
                     train_remat_names[s->o->remat], "slices", (json_int_t)s->o->slices, "step",
                     "s", t->s, "compute_s", t->compute_s, "optimizer_s", t->optimizer_s, "comm_s",
                     t->comm_s, "exposed_comm_s", t->exposed_comm_s, "mfu", t->mfu, "hfu", t->hfu,
                     "tokens_per_s_per_chip", t->tokens_per_s_per_chip, "state_bytes",
                     t->hbm_bytes);
}

/* The options that are not at their defaults, beside the chip: another setting is another system. */
static int print_settings(const struct sim_options *o, char *out, size_t bytes, struct err *e) {
    struct sim_options def = {0};
    struct arena a = {0};
    struct buf b;
    buf_init(&b, bytes - sizeof "…");
    options_defaults(sim_table, &def, &a);
    json_t *ours = options_to_json(sim_table, o), *theirs = options_to_json(sim_table, &def);
    int rc = ours && theirs ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
    for (const struct option *row = sim_table; !rc && row->type != OPT_END; row++) {
        json_t *v = json_object_get(ours, row->name);
        if (!v || !strncmp(row->name, "chip", 4) || json_equal(v, json_object_get(theirs, row->name)))
            continue;
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        size_t quote = json_is_string(v), n = text ? strlen(text) : 0;
        buf_printf(&b, "%s%s=%.*s", b.n ? ", " : "", row->name, (int)(n - 2 * quote),
                   text ? text + quote : "");
        free(text);
    }
    json_decref(ours);
    json_decref(theirs);
    arena_release(&a);
    snprintf(out, bytes, "%s%s", b.p ? b.p : "", b.failed ? "…" : "");
    buf_release(&b);
    return rc;
}

static int sim_describe(struct backend *b, struct backend_info *info, struct err *e) {
    struct sim *s = (struct sim *)b;
    const struct model *m = &s->workload->model;
    *info = (struct backend_info){
        .result_class = CLASS_SIMULATED,
        .virtual_clock = true,
        .chips = s->o->chips * s->o->slices,
        .peak_flops_per_s = chip_peak_flops(&s->chip, (enum num)s->o->math),
        .flops_per_token = 2.0 * (double)model_active_parameters(m),
    };
    snprintf(info->chip, sizeof info->chip, "%s", s->chip.name);
    snprintf(info->model_id, sizeof info->model_id, "sim/%.40s-%" PRId64 "/%s", s->chip.name,
             info->chips, m->name);
    int rc = print_settings(s->o, info->settings, sizeof info->settings, e);
    if (rc)
        return rc;
    json_t *d = s->engines ? serving_details(s) : training_details(s);
    if (!d || json_object_set(d, "chip", s->chip_json) ||
        json_object_set_new(d, "model_version", json_string(backend_tpu_sim.version)) ||
        json_object_set_new(d, "options", options_to_json(sim_table, s->o))) {
        json_decref(d);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    info->details = d;
    return 0;
}

/* The ops of the run by falling time. */
static json_t *sim_observe(struct backend *b) {
    struct sim *s = (struct sim *)b;
    struct explain x;
    struct err ignored = {0};
    struct cost attention = {0};
    double total_s = 0;
    if (s->search.n) {
        json_t *search = mesh_search_json(&s->search, 20);
        return search ? json_pack("{s:o}", "mesh_search", search) : NULL;
    }
    if (!s->engines || explain_init(&x, &s->model, &ignored))
        return NULL;
    for (int64_t i = 0; i < s->engines; i++) {
        struct engine_counters c;
        engine_count(s->engine[i], &c);
        engine_explain(s->engine[i], &x);
        cost_add(&attention, &c.attention, 1);
        total_s += cost_total(&c.busy);
    }
    json_t *rows = explain_json(&x, &attention, total_s);
    explain_release(&x);
    return rows ? json_pack("{s:f, s:o}", "busy_s", total_s, "ops", rows) : NULL;
}

const struct backend_ops backend_tpu_sim = {
    .abi = BACKEND_ABI,
    .name = "tpu-sim",
    .summary = "a TPU slice with a continuous-batching engine, or a training step, in virtual time",
    .version = TPU_SIM_VERSION,
    .caps = BACKEND_VIRTUAL_CLOCK | BACKEND_SERVING | BACKEND_TRAINING | BACKEND_SINGLE,
    .options = sim_table,
    .options_size = sizeof(struct sim_options),
    .open = sim_open,
    .describe = sim_describe,
    .observe = sim_observe,
    .submit = sim_submit,
    .wait = sim_wait,
    .now = sim_now,
    .next_ns = sim_next,
    .cancel = sim_cancel,
    .shares = sim_shares,
    .train = sim_train,
    .close = sim_close,
};
