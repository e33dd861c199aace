/* Traces: the table of formats, opening, and the check of the time unit. */
#include "workloads/trace_internal.h"

#include "harness/core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct trace_ops *const formats[] = {
    [TRACE_MOONCAKE] = &trace_mooncake,
    [TRACE_AZURE] = &trace_azure,
    [TRACE_BURSTGPT] = &trace_burstgpt,
    [TRACE_SHAREGPT] = &trace_sharegpt,
    [TRACE_ENDPOINTS] = &trace_endpoints,
    [TRACE_WEKA] = &trace_weka,
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

const struct trace_format_info *trace_format_info(enum trace_format f) {
    return (unsigned)f < FORMATS && formats[f] ? &formats[f]->info : NULL;
}

static int start(struct reader reader, enum trace_format f, const struct trace_options *o,
                 struct trace **out, struct err *e) {
    *out = NULL;
    struct trace *t = calloc(1, sizeof *t);
    if (!t) {
        if (reader.fd >= 0)
            close(reader.fd);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    t->ops = formats[f];
    t->reader = reader;
    t->options = *o;
    t->reader.seen = o->seen;
    t->reader.seen_ctx = o->seen_ctx;
    t->state = calloc(1, t->ops->state_bytes);
    int rc = t->state ? reader_start(&t->reader, e) : err_set(e, ASSAY_ENOMEM, "out of memory");
    if (rc == 0 && t->ops->open)
        rc = t->ops->open(t, e);
    if (rc) {
        trace_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

int trace_open(const char *path, enum trace_format f, const struct trace_options *o,
               struct trace **out, struct err *e) {
    *out = NULL;
    if (!trace_format_info(f))
        return err_set(e, ASSAY_EUSAGE, "'%s' is opened as a trace of no format", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return err_errno(e, ASSAY_EINPUT, error, "cannot open '%s'", path);
    }
    if (S_ISDIR(st.st_mode)) {
        close(fd);
        return err_set(e, ASSAY_EINPUT, "cannot open '%s': it is a folder", path);
    }
    return start((struct reader){.name = path, .fd = fd}, f, o, out, e);
}

int trace_open_memory(const void *p, size_t n, const char *name, enum trace_format f,
                      const struct trace_options *o, struct trace **out, struct err *e) {
    *out = NULL;
    if (!trace_format_info(f))
        return err_set(e, ASSAY_EUSAGE, "'%s' is opened as a trace of no format", name);
    return start((struct reader){.name = name, .fd = -1, .mem = p, .mem_n = n}, f, o, out, e);
}

int trace_next(struct trace *t, struct trace_row *row, bool *end, struct err *e) {
    if (t->ops->next)
        return t->ops->next(t, row, end, e);
    if (t->call == t->session.ncalls) {
        session_clear(&t->session);
        t->call = 0;
        int rc = t->ops->next_session(t, &t->session, end, e);
        if (rc || *end)
            return rc;
    }
    const struct session_call *c = &t->session.call[t->call++];
    *row = (struct trace_row){.line = c->line,
                              .arrival_ns = -1,
                              .isl = c->isl,
                              .osl = c->osl,
                              .nblocks = c->whole_blocks,
                              .blocks = c->blocks};
    *end = false;
    return 0;
}

int trace_next_session(struct trace *t, struct session *s, bool *end, struct err *e) {
    return t->ops->next_session(t, s, end, e);
}

void session_clear(struct session *s) {
    arena_release(&s->arena);
    *s = (struct session){0};
}

uint32_t trace_estimate_tokens(size_t bytes) {
    size_t n = (bytes + TRACE_BYTES_PER_TOKEN - 1) / TRACE_BYTES_PER_TOKEN;
    return n ? (uint32_t)n : 1;
}

int trace_drain(struct trace *t, struct err *e) {
    bool got = true;
    int rc = 0;
    while (!rc && got) {
        t->reader.begin = t->reader.end;
        rc = reader_more(&t->reader, &got, e);
    }
    return rc;
}

uint64_t trace_dropped(const struct trace *t) {
    return t->dropped;
}

void trace_close(struct trace *t) {
    if (!t)
        return;
    if (t->ops->close && t->state)
        t->ops->close(t);
    if (t->reader.fd >= 0)
        close(t->reader.fd);
    session_clear(&t->session);
    free(t->reader.buf);
    free(t->state);
    free(t);
}

int trace_check_rate(const char *path, enum trace_format f, const struct trace_options *o,
                     struct err *e) {
    const struct trace_format_info *info = trace_format_info(f);
    if (!info || info->resolution_ns == 0 || o->force)
        return 0;
    struct trace *t;
    struct trace_options unseen = *o;
    unseen.seen = NULL;
    int rc = trace_open(path, f, &unseen, &t, e);
    if (rc)
        return rc;
    int64_t first = 0, last = 0, rows = 0;
    for (bool end = false; rows < 65536; rows++) {
        struct trace_row row;
        rc = trace_next(t, &row, &end, e);
        if (rc || end)
            break;
        if (rows == 0 || row.arrival_ns < first)
            first = row.arrival_ns;
        if (rows == 0 || row.arrival_ns > last)
            last = row.arrival_ns;
    }
    trace_close(t);
    if (rc || rows < 2)
        return rc;
    int64_t span_ns = last - first > info->resolution_ns ? last - first : info->resolution_ns;
    double rate_per_s = (double)(rows - 1) * (double)NS_PER_S / (double)span_ns;
    if (rate_per_s > 100000 || rate_per_s * 3600 < 1)
        return err_set(
            e, ASSAY_EINPUT,
            "%s: expected a mean rate between 1 an hour and 100000 a second, found %.4g a "
            "second over %lld rows: is it a %s trace with its own time unit? "
            "(trace.force=true takes it)",
            path, rate_per_s, (long long)rows, info->name);
    return 0;
}
