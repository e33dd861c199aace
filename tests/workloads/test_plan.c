/* Plans: pure, exactly divisible among shards, equal to published vectors. */
#include "harness/core/json.h"
#include "workloads/plan.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct workload *load(const char *name, const char *a, const char *b, const char *c) {
    const char *overrides[3] = {a, b, c};
    struct workload *w;
    struct err e = {0};
    int n = !!a + !!b + !!c;
    cr_assert(eq(int, workload_load(name, overrides, n, &w, &e), 0), "%s", e.text);
    return w;
}

/* All requests of a shard, sessions turn after turn with planned answers; returns how many. */
static size_t collect(const struct workload *w, uint32_t shard, uint32_t shards,
                      struct request *out, size_t max) {
    struct plan *p;
    struct err e = {0};
    size_t n = 0;
    cr_assert(eq(int, plan_open(w, shard, shards, &p, &e), 0), "%s", e.text);
    for (;;) {
        struct request r;
        bool end;
        cr_assert(eq(int, plan_next(p, &r, &end, &e), 0), "%s", e.text);
        if (end)
            break;
        int64_t at_ns;
        do {
            bool over;
            cr_assert(lt(sz, n, max));
            out[n] = r;
            out[n].text = NULL;
            out[n++].blocks = NULL;
            cr_assert(eq(int, plan_done(p, &r, 0, r.osl, false, &over, &e), 0), "%s", e.text);
            cr_assert(eq(int, over, r.last_turn));
        } while (plan_take(p, &r, &at_ns));
    }
    plan_close(p);
    return n;
}

static int by_id(const void *a, const void *b) {
    const struct request *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static const struct {
    const char *name, *a, *b;
} shipped[] = {
    {"inferencex-8k1k", "pattern=concurrency:8", NULL},
    {"inferencex-1k1k", "pattern=concurrency:3", NULL},
    {"chat-serving", "requests=333", NULL},
    {"decode-loop", NULL, NULL},
    {"reasoning-loop", NULL, NULL},
    {"agentic-multiturn", NULL, NULL},
    {"agentic-multiturn", "requests=1", NULL},
    {"agentic-multiturn", "warmup=1", "requests=77"},
    {"offline-batch", "requests=100", NULL},
};

Test(workloads_plan, the_union_of_shards_is_the_single_plan, .timeout = 60) {
    enum { MAX = 20000 };
    struct request *one = calloc(MAX, sizeof *one), *all = calloc(MAX, sizeof *all);
    for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++) {
        struct workload *w = load(shipped[i].name, shipped[i].a, shipped[i].b, NULL);
        size_t n = collect(w, 0, 1, one, MAX);
        cr_assert(eq(sz, n, (size_t)(w->warmup_requests + w->requests)), "%s", shipped[i].name);
        for (size_t k = 0; k < n; k++)
            cr_assert(eq(u64, one[k].id, k), "ids of one shard are dense and in order");
        static const uint32_t counts[] = {2, 3, 8};
        for (size_t c = 0; c < 3; c++) {
            size_t m = 0;
            for (uint32_t s = 0; s < counts[c]; s++) {
                size_t got = collect(w, s, counts[c], all + m, MAX - m);
                for (size_t k = 1; k < got; k++)
                    cr_assert(lt(u64, all[m + k - 1].id, all[m + k].id), "order is kept");
                for (size_t k = 0; k < got; k++)
                    cr_assert(eq(u64,
                                 (w->has_sessions ? all[m + k].session : all[m + k].id) % counts[c],
                                 s));
                m += got;
            }
            cr_assert(eq(sz, m, n));
            qsort(all, m, sizeof *all, by_id);
            cr_assert(eq(int, memcmp(one, all, n * sizeof *one), 0), "%s", shipped[i].name);
        }
        struct plan *p;
        struct err e = {0};
        cr_assert(eq(int, plan_open(w, 1, 2, &p, &e), 0));
        cr_assert(eq(i64, plan_total(p), (int64_t)n));
        plan_close(p);
        workload_free(w);
    }
    free(one);
    free(all);
}

Test(workloads_plan, another_seed_is_another_plan_and_the_same_seed_the_same) {
    static struct request a[2600], b[2600], c[2600];
    struct workload *w = load("chat-serving", NULL, NULL, NULL);
    struct workload *v = load("chat-serving", "seed=2", NULL, NULL);
    size_t n = collect(w, 0, 1, a, 2600);
    cr_assert(eq(sz, collect(w, 0, 1, b, 2600), n));
    cr_assert(eq(sz, collect(v, 0, 1, c, 2600), n));
    cr_assert(eq(int, memcmp(a, b, n * sizeof *a), 0));
    cr_assert(ne(int, memcmp(a, c, n * sizeof *a), 0));
    for (size_t i = 1; i < n; i++)
        cr_assert(ne(u64, a[i].content_seed, a[i - 1].content_seed));
    workload_free(w);
    workload_free(v);
}

/* Golden: numpy 1.24.2's legacy generator as the InferenceX client uses it (shared vectors). */
Test(workloads_plan, range_ratio_lengths_equal_numpys) {
    static const char path[] = "../shared/data/inferencex/result_json/random_lens_vectors.json";
    if (access(path, R_OK))
        cr_skip_test("%s is not here", path);
    json_t *sets;
    struct err e = {0};
    cr_assert(eq(int, json_parse_file(path, &sets, &e), 0), "%s", e.text);
    cr_assert(eq(sz, json_array_size(sets), 3));
    for (size_t s = 0; s < 3; s++) {
        json_t *v = json_array_get(sets, s);
        json_int_t n = json_integer_value(json_object_get(v, "num_prompts"));
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"name\":\"t\",\"kind\":\"serving\",\"pattern\":\"concurrency:4\",\"seed\":%lld,"
                 "\"requests\":%lld,\"warmup\":{\"requests\":5},"
                 "\"isl\":{\"kind\":\"range_ratio\",\"value\":%lld,\"ratio\":%.17g},"
                 "\"osl\":{\"kind\":\"range_ratio\",\"value\":%lld,\"ratio\":%.17g}}",
                 json_integer_value(json_object_get(v, "seed")), n,
                 json_integer_value(json_object_get(v, "isl")),
                 json_number_value(json_object_get(v, "range_ratio")),
                 json_integer_value(json_object_get(v, "osl")),
                 json_number_value(json_object_get(v, "range_ratio")));
        json_t *json;
        struct workload *w;
        struct request r[64];
        cr_assert(eq(int, json_parse(text, strlen(text), "t", &json, &e), 0), "%s", e.text);
        cr_assert(eq(int, workload_from_json(json, "t", &w, &e), 0), "%s", e.text);
        cr_assert(eq(sz, collect(w, 0, 1, r, 64), (size_t)n + 5));
        for (size_t i = 0; i < (size_t)n + 5; i++) {
            size_t k = i < 5 ? 0 : i - 5; /* warm-up: copies of the first prompt */
            json_t *isl = json_array_get(json_object_get(v, "input_lens"), k);
            json_t *osl = json_array_get(json_object_get(v, "output_lens"), k);
            cr_assert(eq(i64, r[i].isl, json_integer_value(isl)));
            cr_assert(eq(i64, r[i].osl, json_integer_value(osl)));
        }
        cr_assert(eq(u64, r[0].content_seed, r[5].content_seed));
        cr_assert(ne(u64, r[5].content_seed, r[6].content_seed));
        json_decref(json);
        workload_free(w);
    }
    json_decref(sets);
}

/* The first lengths of seed 0, numpy.random.seed(0); randint(819, 1025, 16), as above but here. */
Test(workloads_plan, range_ratio_of_the_library_starts_as_numpys) {
    static const uint32_t isl[] = {991, 866, 936, 1011, 886, 1014, 922, 828};
    static struct request r[400];
    struct workload *w = load("inferencex-1k1k", "pattern=concurrency:16", NULL, NULL);
    cr_assert(eq(sz, collect(w, 0, 1, r, 400), 32 + 160));
    for (size_t i = 0; i < 8; i++)
        cr_assert(eq(u32, r[32 + i].isl, isl[i]));
    workload_free(w);
}

Test(workloads_plan, sessions_grow_and_stay_within_the_context) {
    static struct request r[4000];
    struct workload *w = load("agentic-multiturn", "sessions.max_context=40000", NULL, NULL);
    size_t n = collect(w, 0, 1, r, 4000), sessions = 0, cut = 0;
    for (size_t i = 0; i < n; i++) {
        cr_assert(le(u64, (uint64_t)r[i].isl + r[i].osl, 40000));
        if (r[i].turn == 0) {
            sessions++;
            cr_assert(eq(u32, r[i].shared, 0));
            cr_assert(eq(i64, r[i].delay_ns, 0));
            cr_assert(eq(u64, r[i].session, sessions - 1));
            continue;
        }
        cr_assert(eq(u64, r[i].session, r[i - 1].session));
        cr_assert(eq(u64, r[i].content_seed, r[i - 1].content_seed));
        cr_assert(eq(u32, r[i].shared, r[i - 1].isl + r[i - 1].osl));
        cr_assert(gt(u32, r[i].isl, r[i].shared));
        cr_assert(ge(i64, r[i].delay_ns, 100000000));
        cr_assert(le(i64, r[i].delay_ns, 10000000000));
        cr_assert(eq(int, r[i].last_turn, r[i].turn + 1 == r[i].turns));
        cut += r[i].last_turn;
    }
    cr_assert(gt(sz, sessions, 10));
    cr_assert(gt(sz, cut, 10));
    /* the warm-up ends with a whole session's last turn */
    cr_assert(eq(int, r[w->warmup_requests - 1].last_turn, 1));
    cr_assert(eq(u32, r[w->warmup_requests].turn, 0));
    workload_free(w);
}

Test(workloads_plan, a_number_of_sessions_counts_their_turns) {
    static struct request r[4000];
    struct workload *w = load("reasoning-loop", "sessions.count=40", "requests=1000", "warmup=7");
    size_t n = collect(w, 0, 1, r, 4000);
    cr_assert(eq(u64, r[n - 1].session + 1 - (r[6].session + 1), 40));
    struct plan *p;
    struct err e = {0};
    cr_assert(eq(int, plan_open(w, 0, 3, &p, &e), 0));
    cr_assert(eq(i64, plan_total(p), (int64_t)n));
    plan_close(p);
    workload_free(w);
}

Test(workloads_plan, a_first_turn_longer_than_the_context_is_cut) {
    static struct request r[100];
    struct workload *w =
        load("agentic-multiturn", "sessions.max_context=2", "requests=5", "warmup=1");
    cr_assert(eq(sz, collect(w, 0, 1, r, 100), 6));
    for (size_t i = 0; i < 6; i++) {
        cr_assert(eq(u32, r[i].isl, 1));
        cr_assert(eq(u32, r[i].osl, 1));
        cr_assert(eq(u32, r[i].turns, 1));
    }
    workload_free(w);
}

Test(workloads_plan, a_training_plan_is_empty) {
    struct request r[1];
    struct workload *w = load("training-step", NULL, NULL, NULL);
    cr_assert(eq(sz, collect(w, 0, 1, r, 1), 0));
    workload_free(w);
}

/* ---- shared prefixes ---- */

Test(workloads_plan, a_group_shares_a_prefix_and_draws_are_even) {
    enum { N = 3000 };
    static struct request r[N + 200];
    struct workload *w =
        load("decode-loop", "requests=3000", "shared_prefix.tokens=40", "shared_prefix.groups=3");
    size_t n = collect(w, 0, 1, r, N + 200);
    uint64_t seeds[3] = {0};
    int of[3] = {0}, groups = 0;
    for (size_t i = 0; i < n; i++) {
        int k = 0;
        while (k < groups && seeds[k] != r[i].common_seed)
            k++;
        if (k == groups) {
            cr_assert(lt(int, groups, 3));
            seeds[groups++] = r[i].common_seed;
        }
        of[k]++;
        cr_assert(eq(u32, r[i].common, r[i].isl > 40 ? 40 : r[i].isl - 1));
    }
    cr_assert(eq(int, groups, 3));
    for (int k = 0; k < 3; k++) /* about 1000 each, standard deviation 26 */
        cr_assert(of[k] > 850 && of[k] < 1150, "%d", of[k]);
    workload_free(w);
}

Test(workloads_plan, a_session_keeps_its_prefix_through_its_turns) {
    static struct request r[3000];
    struct workload *w = load("agentic-multiturn", "warmup.requests=0", "requests=400",
                              "shared_prefix.tokens=5000");
    size_t n = collect(w, 0, 1, r, 3000);
    for (size_t i = 0; i < n; i++) {
        cr_assert(eq(u64, r[i].common_seed, r[0].common_seed), "one group");
        if (r[i].turn)
            cr_assert(eq(u32, r[i].common, r[i - 1].common));
        else
            cr_assert(eq(u32, r[i].common, r[i].isl > 5000 ? 5000 : r[i].isl - 1));
    }
    workload_free(w);
    /* no field, no prefix: plans of before stay what they were */
    w = load("agentic-multiturn", "warmup.requests=0", "requests=10", NULL);
    n = collect(w, 0, 1, r, 3000);
    for (size_t i = 0; i < n; i++)
        cr_assert(eq(u32, r[i].common, 0));
    workload_free(w);
}
