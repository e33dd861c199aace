/* The shared fixture of the http backend's tests. */
#include "tests/backends/http_fixture.h"

#include "harness/core/clock.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

static struct event_block *overflow(void *ctx, struct event_block *full) {
    (void)ctx;
    (void)full;
    abort(); /* a test recorded more events than a block holds */
}

int fixture_open(struct fixture *f, const char *const *options) {
    const struct backend_ops *o = &backend_http;
    f->sink = (struct event_sink){.block = &f->block, .flush = overflow};
    f->options = calloc(1, o->options_size);
    options_defaults(o->options, f->options, &f->arena);
    char url[64];
    if (f->server) {
        snprintf(url, sizeof url, "url=http://127.0.0.1:%d", mock_port(f->server));
        if (options_set_pair(o->options, f->options, url, "-o", &f->arena, &f->err))
            return f->err.code;
    }
    if (options_set_pair(o->options, f->options, "prewarm=off", "-o", &f->arena, &f->err))
        return f->err.code;
    for (; options && *options; options++)
        if (options_set_pair(o->options, f->options, *options, "-o", &f->arena, &f->err))
            return f->err.code;
    f->origin_ns = clock_now_ns();
    struct backend_open_args args = {.workload = &f->workload,
                                     .options = f->options,
                                     .sink = &f->sink,
                                     .shards = 1,
                                     .origin_ns = f->origin_ns,
                                     .max_in_flight = 4};
    return o->open(&args, &f->backend, &f->err);
}

void fixture_start(struct fixture *f, const struct mock_config *c, const char *const *options) {
    f->server = mock_start(c);
    cr_assert(zero(int, fixture_open(f, options)), "%s", f->err.text);
}

void fixture_stop(struct fixture *f) {
    backend_http.close(f->backend);
    if (f->server)
        mock_stop(f->server);
    free(f->options);
    arena_release(&f->arena);
}

struct request fixture_request(uint64_t id, uint32_t isl, uint32_t osl) {
    return (struct request){.id = id,
                            .session = REQUEST_NO_SESSION,
                            .isl = isl,
                            .osl = osl,
                            .arrival_ns = -1,
                            .content_seed = 7};
}

int fixture_submit(struct fixture *f, const struct request *r) {
    struct completion c;
    return backend_http.submit(f->backend, r, &c, &f->err);
}

int fixture_wait(struct fixture *f, struct completion *c, int n) {
    int64_t deadline = backend_http.now(f->backend) + 10 * NS_PER_S;
    int have = 0;
    while (have < n) {
        int k = 0;
        int rc = backend_http.wait(f->backend, deadline, c + have, n - have, &k, &f->stop, &f->err);
        if (rc)
            return rc;
        cr_assert(gt(int, k, 0), "no completion within 10 s");
        have += k;
    }
    return 0;
}

struct completion fixture_run(struct fixture *f, uint64_t id, uint32_t osl) {
    struct request r = fixture_request(id, 4, osl);
    struct completion c = {0};
    cr_assert(eq(int, fixture_submit(f, &r), SUBMIT_QUEUED), "%s", f->err.text);
    cr_assert(zero(int, fixture_wait(f, &c, 1)), "%s", f->err.text);
    cr_assert(eq(u64, c.request, id));
    return c;
}

int fixture_event(const struct fixture *f, enum event_kind kind, uint64_t request, int k) {
    for (uint32_t i = 0; i < f->block.n; i++)
        if (f->block.kind[i] == kind && f->block.request[i] == request && k-- == 0)
            return (int)i;
    return -1;
}

int fixture_count(const struct fixture *f, enum event_kind kind, uint64_t request) {
    int n = 0;
    while (fixture_event(f, kind, request, n) >= 0)
        n++;
    return n;
}

int64_t fixture_counter(struct fixture *f, const char *name) {
    json_t *seen = backend_http.observe(f->backend);
    int64_t v = json_integer_value(json_object_get(json_object_get(seen, "counts"), name));
    json_decref(seen);
    return v;
}

static int bound_shift(const struct fixture *f, int index) {
    enum { NO_BOUND = 62 };
    return f->block.kind[index] == EVENT_TOKENS ? EVENT_TOKENS_BOUND_SHIFT
           : f->block.kind[index] == EVENT_DONE ? EVENT_DONE_BOUND_SHIFT
                                                : NO_BOUND;
}

int64_t fixture_b(const struct fixture *f, int index) {
    return f->block.b[index] & ((INT64_C(1) << bound_shift(f, index)) - 1);
}

int64_t fixture_bound(const struct fixture *f, int index) {
    return f->block.b[index] >> bound_shift(f, index);
}

void fixture_run_busy(struct fixture *f, int n, struct busy *b) {
    struct completion c[16];
    for (int done = 0, k; done < n; done += k) {
        cr_assert(lt(int, b->n, 256), "no completion within 8 s");
        b->from_ns[b->n] = clock_now_ns();
        while ((b->to_ns[b->n] = clock_now_ns()) < b->from_ns[b->n] + 30 * NS_PER_MS)
            ;
        b->n++;
        cr_assert(zero(int, backend_http.wait(f->backend, backend_http.now(f->backend) + NS_PER_MS, c, 16,
                                              &k, &f->stop, &f->err)),
                  "%s", f->err.text);
    }
}

bool fixture_check_bound(const struct fixture *f, const struct busy *b, int index, int64_t written_ns) {
    int64_t stamp_ns = f->block.time_ns[index] + f->origin_ns;
    for (int i = 0; i < b->n; i++)
        if (b->from_ns[i] <= written_ns && written_ns <= b->to_ns[i]) {
            cr_assert(ge(i64, event_bound_ns(fixture_bound(f, index)), stamp_ns - written_ns));
            return true;
        }
    return false;
}
