/* The array of messages or the flat prompt of a request, its salt, and the life of its history. */
#include "backends/http/talk.h"

#include "harness/core/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void talk_init(struct talk *t, const struct talk_options *o) {
    *t = (struct talk){.o = *o};
}

void talk_release(struct talk *t) {
    histories_release(&t->histories);
    *t = (struct talk){0};
}

/* ---- salts ---- */

/* BLAKE2b of 16 bits (RFC 7693) of up to 128 bytes: what MLPerf Endpoints prints as a salt. */
uint16_t talk_blake2b_16(const void *p, size_t n) {
    static const uint64_t iv[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                   0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                   0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
    static const uint8_t sigma[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
    static const uint8_t mix[8][4] = {{0, 4, 8, 12}, {1, 5, 9, 13},  {2, 6, 10, 14}, {3, 7, 11, 15},
                                      {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13},  {3, 4, 9, 14}};
    uint64_t m[16] = {0}, v[16], h0 = iv[0] ^ 0x01010002;
    if (n > sizeof m)
        n = sizeof m;
    memcpy(m, p, n); /* little-endian, as everything here assumes */
    for (int i = 0; i < 8; i++) {
        v[i] = i ? iv[i] : h0;
        v[i + 8] = iv[i];
    }
    v[12] ^= n;
    v[14] = ~v[14];
#define ROTATE(x, k) ((x) >> (k) | (x) << (64 - (k)))
    for (int round = 0; round < 12; round++)
        for (int i = 0; i < 8; i++) {
            uint64_t *a = &v[mix[i][0]], *b = &v[mix[i][1]], *c = &v[mix[i][2]], *d = &v[mix[i][3]];
            const uint8_t *s = &sigma[round % 10][2 * i];
            *a += *b + m[s[0]];
            *d = ROTATE(*d ^ *a, 32);
            *c += *d;
            *b = ROTATE(*b ^ *c, 24);
            *a += *b + m[s[1]];
            *d = ROTATE(*d ^ *a, 16);
            *c += *d;
            *b = ROTATE(*b ^ *c, 63);
        }
#undef ROTATE
    uint64_t h = h0 ^ v[0] ^ v[8];
    return (uint16_t)((h & 0xff) << 8 | (h >> 8 & 0xff));
}

/* 0 = no salt. */
static uint64_t salt_of(const struct talk *t, const struct request *r) {
    bool by_session = t->o.salt == TALK_SALT_SESSION && r->session != REQUEST_NO_SESSION;
    uint64_t s = by_session ? r->session : ~r->id;
    return t->o.salt == TALK_SALT_OFF ? 0 : splitmix64(&s) | 1;
}

/* Where the content of the first message begins; 0 when it is no text. */
static size_t content_at(const char *p, size_t n) {
    static const char *const starts[] = {"{\"role\":\"system\",\"content\":\"",
                                         "{\"role\":\"user\",\"content\":\""};
    for (size_t i = 0; i < 2; i++)
        if (n > strlen(starts[i]) && !memcmp(p, starts[i], strlen(starts[i])))
            return strlen(starts[i]);
    return 0;
}

static size_t content_end(const char *p, size_t n, size_t at) {
    while (at < n && p[at] != '"')
        at += p[at] == '\\' ? 2 : 1;
    return at < n ? at : n;
}

static void put_salted(struct buf *out, const struct talk *t, const struct request *r,
                       const char *p, size_t n) {
    uint64_t salt = salt_of(t, r);
    size_t at = salt ? content_at(p, n) : 0;
    if (!at) {
        buf_put(out, p, n);
        return;
    }
    buf_put(out, p, at);
    if (r->talk && t->o.salt == TALK_SALT_SESSION) {
        char play[24];
        int k = snprintf(play, sizeof play, "%" PRIu64, r->talk->play);
        const char *id = r->talk->conversation;
        size_t end = content_end(p, n, at);
        buf_printf(out, "[salt: %04x]\\n\\n", (unsigned)talk_blake2b_16(play, (size_t)k));
        buf_put(out, p + at, end - at);
        buf_printf(out, "\\n\\n[salt: %04x]", (unsigned)talk_blake2b_16(id, strlen(id)));
        buf_put(out, p + end, n - end);
        return;
    }
    buf_printf(out, "[salt: %016" PRIx64 "]\\n\\n", salt);
    buf_put(out, p + at, n - at);
}

/* ---- bodies ---- */

static void put_comma(struct buf *out, size_t begin) {
    if (out->n > begin)
        buf_putc(out, ',');
}

static void put_words(struct buf *out, const struct body_template *b, const char *role,
                      const struct request *r, uint32_t from, uint32_t to) {
    buf_printf(out, "{\"role\":\"%s\",\"content\":\"", role);
    body_put_words(b->words, r, 0, from, to, out);
    buf_puts(out, "\"}");
}

static uint32_t common_of(const struct request *r) {
    return r->common < r->isl ? r->common : r->isl - 1;
}

/* A prompt of no history. */
static void put_prompt_messages(struct buf *out, const struct body_template *b,
                                const struct request *r) {
    uint32_t from = 0, overhead = b->overhead.first;
    if (r->text) {
        buf_puts(out, "{\"role\":\"user\",\"content\":\"");
        body_put_escaped(out, r->text);
        buf_puts(out, "\"}");
        return;
    }
    if (r->common) {
        from = common_of(r);
        overhead = b->overhead.first_system;
        put_words(out, b, "system", r, 0, from);
        buf_putc(out, ',');
    }
    put_words(out, b, "user", r, from, body_text_end(from, r->isl, overhead));
}

static void put_flat(struct buf *out, const struct body_template *b, const struct request *r,
                     uint64_t salt) {
    bool ids = b->ids && !r->text;
    buf_putc(out, ids ? '[' : '"');
    if (salt && !ids)
        buf_printf(out, "[salt: %016" PRIx64 "]\\n\\n", salt);
    if (r->text)
        body_put_escaped(out, r->text);
    else if (ids)
        body_put_ids(b, r, salt, 0, r->isl, out);
    else
        body_put_words(b->words, r, 0, 0, body_text_end(0, r->isl, b->overhead.first), out);
    buf_putc(out, ids ? ']' : '"');
}

static void put_messages(struct buf *out, const struct talk *t, const struct body_template *b,
                         const struct history *k, const struct request *r) {
    buf_putc(out, '[');
    if (k) {
        put_salted(out, t, r, k->text.p, k->text.n);
    } else if (r->talk) {
        put_salted(out, t, r, r->talk->messages, r->talk->messages_bytes);
    } else {
        size_t at = out->n;
        uint64_t salt = salt_of(t, r);
        put_prompt_messages(out, b, r);
        size_t begin = salt && !out->failed ? content_at(out->p + at, out->n - at) : 0;
        if (begin) { /* into what was just written */
            char mark[40];
            int n = snprintf(mark, sizeof mark, "[salt: %016" PRIx64 "]\\n\\n", salt);
            if (buf_reserve(out, (size_t)n)) {
                char *p = out->p + at + begin;
                memmove(p + n, p, out->n - at - begin);
                memcpy(p, mark, (size_t)n);
                out->n += (size_t)n;
            }
        }
    }
    buf_putc(out, ']');
}

/* ---- histories ---- */

/* Brings k to r's prompt: what r shares with it stays, the answer to the turn before follows (in
 * tokens, whatever the prompt goes on with there), then what is new. */
static int extend(struct talk *t, const struct body_template *b, struct history *k,
                  const struct request *r, struct err *e) {
    struct histories *h = &t->histories;
    uint32_t have = history_tokens(k);
    int rc = 0;
    if (have && have < r->shared) {
        buf_putc(&k->text, ',');
        put_words(&k->text, b, "assistant", r, have, r->shared);
        rc = history_end_message(h, k, r->shared, e);
    } else if (have > r->shared) {
        history_cut(h, k, r->shared);
    }
    have = history_tokens(k);
    /* tokens that the server's template adds are part of the prompt, too */
    uint32_t overhead = !have                                   ? b->overhead.first
                        : !r->common || have > common_of(r) ? b->overhead.turn
                                                                : b->overhead.first_system;
    if (!rc && !have && r->common) {
        have = common_of(r);
        overhead = b->overhead.first_system;
        put_words(&k->text, b, "system", r, 0, have);
        rc = history_end_message(h, k, have, e);
    }
    if (rc)
        return rc;
    put_comma(&k->text, 0);
    put_words(&k->text, b, "user", r, have, body_text_end(have, r->isl, overhead));
    return history_end_message(h, k, r->isl, e);
}

/* The history of r's branch, NULL when none is kept: outside sessions, and for a later turn whose
 * history is gone. A branch's first turn begins with what it shares with its parent's. */
static int find_history(struct talk *t, const struct request *r, struct history **out,
                        struct err *e) {
    struct histories *h = &t->histories;
    int rc = 0;
    *out = NULL;
    if (r->talk || r->session == REQUEST_NO_SESSION || r->turns < 2)
        return 0;
    if (r->turn) {
        *out = history_find(h, r->session, r->branch);
        return 0;
    }
    if (r->branches > 1 && !history_find(h, r->session, HISTORY_ALL) &&
        (rc = history_add(h, r->session, HISTORY_ALL, out, e)))
        return rc;
    if ((rc = history_add(h, r->session, r->branch, out, e)))
        return rc;
    const struct history *parent =
        r->branch != r->parent ? history_find(h, r->session, r->parent) : NULL;
    return parent && r->shared ? history_copy(h, *out, parent, r->shared, e) : 0;
}

/* Moves a system message that leads the array at out->p + at to a member `system` behind it. */
static void set_system_apart(struct buf *out, size_t at) {
    static const char start[] = "[{\"role\":\"system\",\"content\":\"";
    enum { START = sizeof start - 1 };
    if (out->failed || out->n - at < START || memcmp(out->p + at, start, START))
        return;
    size_t content = at + START, end = content_end(out->p, out->n, content), from = end + 2;
    if (from >= out->n || out->p[end + 1] != '}') /* a message with other members: as it is */
        return;
    from += out->p[from] == ',';
    static const char name[] = ",\"system\":\"";
    if (!buf_reserve(out, sizeof name + end - content + 1))
        return;
    buf_puts(out, name);
    buf_put(out, out->p + content, end - content + 1);
    memmove(out->p + at + 1, out->p + from, out->n - from);
    out->n -= from - (at + 1);
}

/* Recorded tools have the shape that chat wants. */
static int check_tools(const struct body_template *b, const struct request *r, struct err *e) {
    if (!r->talk || !r->talk->tools || b->protocol->dialect == SCAN_OPENAI)
        return 0;
    return err_set(e, ASSAY_EUSAGE,
                   "conversation '%s' was recorded with tools in the shape of -o api=chat: expected "
                   "that API, found '%s'",
                   r->talk->conversation, b->protocol->name);
}

int talk_body(struct talk *t, const struct body_template *b, const struct request *r,
              struct buf *out, struct err *e) {
    struct history *k = NULL;
    int rc = check_tools(b, r, e);
    if (rc || (b->protocol->messages && (rc = find_history(t, r, &k, e))) ||
        (k && (rc = extend(t, b, k, r, e))))
        return rc;
    if (t->histories.bytes > t->o.history_max_bytes)
        return err_set(e, ASSAY_EENV,
                       "the conversations in flight hold more than %lld bytes (-o history=BYTES "
                       "allows more)",
                       (long long)t->o.history_max_bytes);
    body_begin(b, out);
    size_t at = out->n;
    if (b->protocol->messages)
        put_messages(out, t, b, k, r);
    else
        put_flat(out, b, r, salt_of(t, r));
    if (b->protocol->system_apart)
        set_system_apart(out, at);
    if (r->talk && r->talk->tools) {
        buf_puts(out, ",\"tools\":");
        buf_put(out, r->talk->tools, r->talk->tools_bytes);
    }
    return body_end(b, r->osl, out, e);
}

struct talk_turn talk_turn_of(const struct request *r) {
    return (struct talk_turn){r->session, r->branch, r->branches, r->turns, r->last_turn};
}

void talk_answered(struct talk *t, const struct talk_turn *turn, bool failed) {
    struct histories *h = &t->histories;
    if (turn->session == REQUEST_NO_SESSION || h->n == 0)
        return;
    struct history *all =
        turn->branches > 1 ? history_find(h, turn->session, HISTORY_ALL) : NULL;
    if (!all) {
        if (failed || turn->last_turn)
            history_drop(h, turn->session, turn->branch);
        return;
    }
    if (++all->answered < turn->turns && !failed)
        return; /* another branch may still begin with this one's */
    for (uint32_t i = 0; i < turn->branches; i++)
        history_drop(h, turn->session, i);
    history_drop(h, turn->session, HISTORY_ALL);
}

void talk_session_name(const struct request *r, char *out, size_t out_bytes) {
    out[0] = '\0';
    if (r->session == REQUEST_NO_SESSION)
        return;
    const char *name = r->talk ? r->talk->conversation : "assay";
    int n = r->talk && r->talk->play <= 1
                ? snprintf(out, out_bytes, "%s", name)
                : snprintf(out, out_bytes, r->talk ? "%s__repeat_%" PRIu64 : "%s-%" PRIu64, name,
                           r->talk ? r->talk->play : r->session);
    if (r->branch && n > 0 && (size_t)n < out_bytes)
        snprintf(out + n, out_bytes - (size_t)n, ".%u", r->branch);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p > '~')
            *p = '_';
}
