/* Recognises conversations: a prompt that begins with all of an earlier one (and its answer) is the
 * next turn of that session, so that a backend which keeps sessions' KV caches can re-use them.
 * Clients name no sessions; engines that cache prefixes find them by hashes of what the prompt
 * holds so far, and so does this, every eight bytes (two tokens of text, or one token id).
 *
 * Only whole continuations are found: what two conversations merely begin with (a system prompt) is
 * not shared, since backends know a prefix only as one session's. A repetition of the same prompt
 * is a session of its own, so that load of equal prompts is not served as one conversation. */
#include "backends/serve/serve_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1 << 14, /* of WAYS entries; the least recently used of a bucket makes room */
    WAYS = 4,
    WORD_BYTES = 8,
};

/* The last whole word of a prompt, or of a prompt and its answer. */
struct prompt_end {
    uint64_t hash, session, used;
    int64_t isl; /* of the request that ended here */
};

struct sessions {
    struct prompt_end end[BUCKETS][WAYS];
    uint64_t next, clock;
};

int sessions_new(struct sessions **out, struct err *e) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
}

void sessions_free(struct sessions *t) {
    free(t);
}

static struct prompt_end *look_up(struct sessions *t, uint64_t hash) {
    struct prompt_end *bucket = t->end[hash >> 50];
    for (int i = 0; i < WAYS; i++)
        if (bucket[i].hash == hash && bucket[i].used)
            return &bucket[i];
    return NULL;
}

static void enter(struct sessions *t, struct prompt_end e) {
    struct prompt_end *bucket = t->end[e.hash >> 50], *to = look_up(t, e.hash);
    if (!to) {
        to = bucket;
        for (int i = 1; i < WAYS; i++)
            if (bucket[i].used < to->used)
                to = &bucket[i];
    }
    e.used = ++t->clock;
    *to = e;
}

/* ---- hashing ---- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

void prompt_hash_begin(struct prompt_hash *p, struct sessions *t, size_t token_bytes) {
    *p = (struct prompt_hash){
        .sessions = t, .token_bytes = token_bytes, .state = 0x6a09e667f3bcc909 + token_bytes};
}

/* match: whether ends of earlier prompts are looked for after each word. */
static void absorb(struct prompt_hash *p, const char *bytes, size_t n, bool match) {
    while (n) {
        size_t k = WORD_BYTES - p->fill < n ? WORD_BYTES - p->fill : n;
        memcpy((char *)&p->word + p->fill, bytes, k);
        p->fill += k;
        bytes += k;
        n -= k;
        if (p->fill < WORD_BYTES)
            return;
        p->state = mix(p->state, p->word);
        p->fill = 0;
        p->words++;
        struct prompt_end *e = match ? look_up(p->sessions, p->state) : NULL;
        if (e) {
            p->found = true;
            p->session = e->session;
            p->isl = e->isl;
            p->shared = p->words * WORD_BYTES / (int64_t)p->token_bytes;
            e->used = ++p->sessions->clock;
        }
    }
}

void prompt_hash_add(struct prompt_hash *p, const char *bytes, size_t n) {
    absorb(p, bytes, n, true);
}

void sessions_settle(struct prompt_hash *p, struct serve_request *r) {
    struct sessions *t = p->sessions;
    bool turn = p->found && r->isl > p->isl;
    r->session = turn ? p->session : t->next++;
    r->shared = !turn ? 0 : p->shared < r->isl ? p->shared : r->isl - 1;
    if (p->words)
        enter(t, (struct prompt_end){.hash = p->state, .session = r->session, .isl = r->isl});
    if (p->token_bytes != SERVE_PIECE_BYTES)
        return; /* token ids: nobody can send back ids for our text */
    for (int64_t i = 0; i < r->osl; i++) {
        char piece[SERVE_PIECE_BYTES];
        serve_piece(i, piece);
        absorb(p, piece, sizeof piece, false);
    }
    if (p->words)
        enter(t, (struct prompt_end){.hash = p->state, .session = r->session, .isl = r->isl});
}
