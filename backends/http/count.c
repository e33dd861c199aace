/* Output tokens: who counted them. As the server said, by the ids it sent, by the model's own
 * tokenizer over the text of the answer, or one a token event. With a tokenizer, text prompts are
 * made of words that are a token each, and what the server's template adds is left out of them, so
 * that they have the length asked for.
 *
 * The tokenizer runs when a request has ended, never between its events; it is loaded once for all
 * threads. */
#include "backends/http/http_internal.h"

#include "harness/core/clock.h"
#include "workloads/tokenizer/prompt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *const count_names[] = {"usage", "ids", "tokenizer", "events", "auto", NULL};

/* ---- tokenizers, shared ---- */

static struct shared {
    struct shared *next;
    struct tokenizer *tokenizer;
    int users;
    char path[];
} * all_shared;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static int share(const char *path, const struct tokenizer **out, struct err *e) {
    pthread_mutex_lock(&shared_lock);
    struct shared *s = all_shared;
    size_t n = strlen(path) + 1;
    int rc = 0;
    while (s && strcmp(s->path, path))
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s + n);
        rc = s ? tokenizer_load(path, &s->tokenizer, e) : err_set(e, ASSAY_ENOMEM, "out of memory");
        if (rc) {
            free(s);
            goto out;
        }
        memcpy(s->path, path, n);
        s->next = all_shared;
        all_shared = s;
    }
    s->users++;
    *out = s->tokenizer;
out:
    pthread_mutex_unlock(&shared_lock);
    return rc;
}

static void give_back(const struct tokenizer *t) {
    pthread_mutex_lock(&shared_lock);
    for (struct shared **p = &all_shared; *p; p = &(*p)->next)
        if ((*p)->tokenizer == t) {
            struct shared *s = *p;
            if (--s->users == 0) {
                *p = s->next;
                tokenizer_free(s->tokenizer);
                free(s);
            }
            break;
        }
    pthread_mutex_unlock(&shared_lock);
}

/* ---- open ---- */

static int take_words(struct http *h, const struct prompt_maker *m, struct err *e) {
    size_t n = prompt_nwords(m);
    if (!n)
        return err_set(
            e, ASSAY_EINPUT,
            "-o tokenizer=%s: expected words of one token each for text prompts, found none",
            h->o.tokenizer);
    h->tokens.word = calloc(n, sizeof *h->tokens.word);
    if (!h->tokens.word)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        h->tokens.word[i] = prompt_word(m, i); /* of a static list: outlives m */
    h->tokens.words = (struct body_words){h->tokens.word, (uint32_t)n};
    return 0;
}

/* Tokens of a conversation whose messages are one word each. */
static int chat_tokens(struct http *h, const struct chat_template *t, const enum chat_role *roles,
                       size_t n, const char *date, size_t *tokens, struct err *e) {
    struct chat_message m[4];
    struct buf text;
    const char *word = h->tokens.word[0];
    for (size_t i = 0; i < n; i++)
        m[i] = (struct chat_message){roles[i], {word, strlen(word)}};
    buf_init(&text, 1024 * 1024);
    int rc = chat_template_render(t, m, n, CHAT_RENDER_GENERATION, date, &text, e);
    if (!rc)
        rc = tokenizer_count(h->tokens.tokenizer, h->tokens.work, text.p, text.n, tokens, e);
    buf_release(&text);
    return rc;
}

static int chat_overhead(struct http *h, const struct chat_template *t, struct err *e) {
    static const enum chat_role roles[] = {CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_USER};
    struct body_overhead *o = &h->tokens.overhead;
    size_t one = 0, system = 0, turns = 0;
    char date[32];
    struct err refused = {0};
    clock_rfc3339(clock_wall_ns(), date, sizeof date);
    date[10] = '\0';
    int rc = chat_tokens(h, t, roles + 1, 1, date, &one, e);
    if (!rc)
        rc = chat_tokens(h, t, roles + 1, 3, date, &turns, e);
    if (rc)
        return rc;
    /* a family that takes no system message: the server will say so */
    if (chat_tokens(h, t, roles, 2, date, &system, &refused))
        system = one + 1;
    o->first = (uint32_t)(one - 1);
    o->first_system = (uint32_t)(system - 2);
    o->turn = (uint32_t)(turns - one - 2);
    return 0;
}

/* The template by name, or the one beside the tokenizer. NULL: none. */
static int choose_template(struct http *h, const struct chat_template **out, struct err *e) {
    const char *name = h->o.chat_template;
    *out = NULL;
    if (name && !strcmp(name, "off"))
        return 0;
    int rc = name ? chat_template_named(name, out, e) : chat_template_load(h->o.tokenizer, out, e);
    return rc ? err_wrap(e, "-o chat_template (a family, or off)") : 0;
}

static int prompt_words(struct http *h, struct err *e) {
    const struct chat_template *chat = NULL;
    struct prompt_maker *m = NULL;
    struct prompt_around around;
    size_t first = 0;
    prompt_around_nothing(&around);
    int rc = prompt_maker_new(h->tokens.tokenizer, &m, e);
    if (!rc)
        rc = take_words(h, m, e);
    if (!rc && h->protocol->messages) {
        rc = choose_template(h, &chat, e);
        if (!rc && chat) {
            h->tokens.chat = chat_template_name(chat);
            rc = chat_overhead(h, chat, e);
        }
    } else if (!rc) {
        rc = prompt_overhead(m, &around, &first, e);
        h->tokens.overhead.first = (uint32_t)first;
    }
    prompt_around_release(&around);
    prompt_maker_free(m);
    return rc;
}

int count_open(struct http *h, struct err *e) {
    const struct http_options *o = &h->o;
    buf_init(&h->tokens.text, 3 * (size_t)o->max_event_bytes + 16);
    if (!o->tokenizer) {
        if (o->count == COUNT_TOKENIZER)
            return err_set(e, ASSAY_EUSAGE,
                           "-o count=tokenizer: expected -o tokenizer=FILE with it");
        return o->chat_template ? err_set(e, ASSAY_EUSAGE,
                                          "-o chat_template: expected -o tokenizer=FILE with it")
                                : 0;
    }
    int rc = share(o->tokenizer, &h->tokens.tokenizer, e);
    if (rc)
        return err_wrap(e, "-o tokenizer");
    h->tokens.work = tokenizer_work_new(h->tokens.tokenizer);
    if (!h->tokens.work)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    return o->prompt == PROMPT_TEXT || h->protocol->messages ? prompt_words(h, e) : 0;
}

void count_close(struct http *h) {
    tokenizer_work_free(h->tokens.work);
    if (h->tokens.tokenizer)
        give_back(h->tokens.tokenizer);
    buf_release(&h->tokens.text);
    free(h->tokens.word);
}

/* ---- a request ---- */

bool count_keeps_text(const struct http *h) {
    return h->tokens.tokenizer && (h->o.count == COUNT_TOKENIZER || h->o.count == COUNT_AUTO);
}

void count_take_text(struct slot *s, const struct scan *c) {
    if (c->text_lost)
        answer_lose(&s->text);
    for (unsigned i = 0; i < c->ntexts; i++)
        answer_add(&s->text, c->text[i].p, c->text[i].n);
}

/* A server was told where to stop, and what it sends beyond that can be counted here. Usage may be
 * less: hidden tokens and several tokens an event are honest, billions are not. */
int64_t count_most(const struct slot *s) {
    int64_t most = s->osl;
    if (s->token_events > most)
        most = s->token_events;
    return s->ids > most ? s->ids : most;
}

static int64_t by_usage(struct slot *s) {
    int64_t most = count_most(s);
    return s->completion_tokens > most ? most : s->completion_tokens;
}

static int64_t by_ids(struct slot *s) {
    return s->ids_complete && s->ids > 0 ? s->ids : -1;
}

static int64_t by_tokenizer(struct slot *s) {
    struct http_tokens *k = &s->h->tokens;
    size_t n;
    struct err e = {0};
    if (!count_keeps_text(s->h) || s->text.lost || !s->text.raw.n)
        return -1;
    buf_clear(&k->text);
    answer_decode(s->text.raw.p, s->text.raw.n, &k->text);
    if (k->text.failed || tokenizer_count(k->tokenizer, k->work, k->text.p, k->text.n, &n, &e)) {
        k->failed++;
        return -1;
    }
    return (int64_t)n;
}

static int64_t by_events(struct slot *s) {
    return s->token_events ? s->token_events : 1;
}

/* By the method asked for, where it can be had, else by the first that can. */
int64_t count_output(struct slot *s, enum count_method *used) {
    static int64_t (*const methods[COUNT_METHODS])(struct slot *) = {by_usage, by_ids, by_tokenizer,
                                                                     by_events};
    int asked = s->h->o.count;
    int64_t n = asked == COUNT_AUTO ? -1 : methods[asked](s);
    *used = (enum count_method)asked;
    for (int i = 0; n < 0 && i < COUNT_METHODS; i++) {
        n = i == asked ? -1 : methods[i](s);
        *used = (enum count_method)i;
    }
    return n;
}

/* ---- what is told ---- */

json_t *count_describe(const struct http *h) {
    const struct http_tokens *k = &h->tokens;
    if (!k->tokenizer)
        return NULL;
    json_t *o = tokenizer_facts(k->tokenizer);
    json_object_set_new(o, "file", json_string(h->o.tokenizer));
    if (k->words.count) {
        json_object_set_new(o, "prompt_words", json_integer(k->words.count));
        json_object_set_new(o, "chat_template", json_string(k->chat ? k->chat : "none"));
        json_object_set_new(o, "prompt_overhead_tokens",
                            json_pack("{s:I,s:I,s:I}", "first", (json_int_t)k->overhead.first,
                                      "first_with_system", (json_int_t)k->overhead.first_system,
                                      "turn", (json_int_t)k->overhead.turn));
    }
    return o;
}

json_t *count_observe(const struct http *h) {
    json_t *o = json_object();
    for (int i = 0; i < COUNT_METHODS; i++)
        if (h->tokens.by[i])
            json_object_set_new(o, count_names[i], json_integer(h->tokens.by[i]));
    return o;
}
