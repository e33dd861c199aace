/* What workloads/session.h promises of every session, for fuzz targets: aborts when it does not hold. */
#ifndef TESTS_FUZZ_SESSION_LAWS_H
#define TESTS_FUZZ_SESSION_LAWS_H

#include "workloads/trace.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void session_law(bool holds) {
    if (!holds)
        abort();
}

static void messages_law(const struct session *s, size_t from, size_t to) {
    size_t n = to - from;
    char *text = malloc(n + 2);
    session_law(text != NULL);
    text[0] = '[';
    memcpy(text + 1, s->messages + from, n);
    text[n + 1] = ']';
    json_t *list = json_loadb(text, n + 2, JSON_REJECT_DUPLICATES, NULL);
    session_law(json_array_size(list) > 0);
    json_decref(list);
    free(text);
}

static void call_laws(const struct session *s, uint32_t i) {
    const struct session_call *c = &s->call[i];
    session_law(c->isl > 0 && c->osl > 0 && c->shared < c->isl);
    session_law(c->branch < s->branches && c->parent < s->branches);
    session_law((c->nwaits == 0) == (i == 0));
    for (uint32_t k = 0; k < c->nwaits; k++)
        session_law(c->wait[k].call < i && c->wait[k].delay_ns >= 0);
    session_law(c->whole_blocks <= c->nblocks &&
                (!c->nblocks || c->nblocks == (c->isl + 63) / 64));
    uint32_t before = i;
    while (before > 0 && s->call[before - 1].branch != c->branch)
        before--;
    if (before == 0) {
        session_law(c->turn == 0);
    } else {
        const struct session_call *b = &s->call[before - 1];
        session_law(!b->last_turn && c->turn == b->turn + 1);
        /* the prefix that is shared with the call before is the same blocks */
        uint32_t tokens = c->shared < b->isl ? c->shared : b->isl;
        if (c->nblocks)
            session_law(!memcmp(c->blocks, b->blocks, tokens / 64 * sizeof *c->blocks));
        session_law(c->messages_bytes >= b->messages_bytes);
    }
    if (s->messages) {
        session_law(c->own_at < c->messages_bytes);
        messages_law(s, 0, c->messages_bytes);
        messages_law(s, c->own_at, c->messages_bytes);
    }
}

static void session_laws(const uint8_t *data, size_t size, enum trace_format format) {
    struct trace *t = NULL;
    struct trace_options o = {0};
    struct err e = {0};
    bool end = false;
    int rc = trace_open_memory(data, size, "fuzz", format, &o, &t, &e);
    while (rc == 0 && !end) {
        struct session s = {0};
        rc = trace_next_session(t, &s, &end, &e);
        session_law(rc || end || (s.ncalls > 0 && s.branches > 0));
        for (uint32_t i = 0; !rc && !end && i < s.ncalls; i++)
            call_laws(&s, i);
        session_clear(&s);
    }
    trace_close(t);
    session_law(!rc || !strncmp(e.text, "fuzz:", 5));
}

#endif
