/* Bytes of answers: events framed as server-sent events inside HTTP chunks, whole bodies, errors,
 * and the identity that every one of them carries. It writes to buffers only; sockets are loop.c's
 * and serve.c's. */
#include "backends/serve/serve_internal.h"

#include "harness/core/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUT_LITERAL(b, text) buf_put((b), (text), sizeof(text) - 1)

void put_json_string(struct buf *b, const char *s) {
    json_t *v = json_string(s);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    if (text) {
        buf_puts(b, text);
    } else { /* not UTF-8 (a message cut inside a character): keep the ASCII */
        buf_putc(b, '"');
        for (; *s; s++)
            buf_putc(b, *s >= 0x20 && *s < 0x7f && *s != '"' && *s != '\\' ? *s : '?');
        buf_putc(b, '"');
    }
    free(text);
    json_decref(v);
}

/* ---- identity ---- */

/* Of the chip's own description where the backend gives one, else of all its details; "" when there
 * are none or nobody can tell. */
static void chip_digest(const struct serve_options *o, const json_t *details, char hex[65]) {
    const json_t *chip = json_object_get(details, "chip");
    unsigned char digest[32];
    hex[0] = '\0';
    if (!o->digest || !details || o->digest(json_is_object(chip) ? chip : details, digest, NULL))
        return;
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

int serve_identity_fill(struct serve_identity *id, const struct serve_options *o,
                        const struct backend_info *info, struct err *e) {
    *id = (struct serve_identity){.backend = o->ops->name, .started_s = clock_wall_ns() / NS_PER_S};
    const struct model *m = o->workload && o->workload->has_model ? &o->workload->model : NULL;
    char chip[sizeof info->chip]; /* goes into a header and into JSON as it is */
    snprintf(chip, sizeof chip, "%s", info->chip[0] ? info->chip : "none");
    for (char *c = chip; *c; c++)
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9') &&
            !strchr("._-+=@", *c))
            *c = '_';
    const char *class_name = result_class_name(info->result_class);
    char digest[65];
    chip_digest(o, info->details, digest);
    snprintf(id->class_name, sizeof id->class_name, "%s", class_name);
    snprintf(id->chip_header, sizeof id->chip_header, "%s;chips=%" PRId64 "%s%s", chip, info->chips,
             digest[0] ? ";sha256=" : "", digest);
    snprintf(id->fingerprint, sizeof id->fingerprint, "assay-%s/%s-%" PRId64, class_name, chip,
             info->chips);
    if (info->model_id[0])
        snprintf(id->model_raw, sizeof id->model_raw, "%s", info->model_id);
    else
        snprintf(id->model_raw, sizeof id->model_raw, "%s/%s", class_name,
                 m ? m->name : o->ops->name);
    if (m) {
        snprintf(id->model_name, sizeof id->model_name, "%s", m->name);
        id->max_context = m->max_context;
    }
    struct buf b;
    buf_init(&b, sizeof id->model + 1);
    put_json_string(&b, id->model_raw);
    int rc = buf_check(&b, "the model id", e);
    if (rc == 0)
        snprintf(id->model, sizeof id->model, "%.*s", (int)b.n - 2, b.p + 1);
    buf_release(&b);
    return rc;
}

/* ---- events ---- */

/* A chunk's length comes before its bytes: five digits are left free and filled in at the end. */
enum { CHUNK_HEAD = 7, CHUNK_MAX = 0xfffff };

static size_t chunk_begin(struct buf *b, const struct serve_stream *s) {
    if (s->chunked)
        PUT_LITERAL(b, "00000\r\n");
    return b->n;
}

static void chunk_end(struct buf *b, const struct serve_stream *s, size_t from) {
    static const char hex[] = "0123456789abcdef";
    if (!s->chunked || b->failed)
        return;
    size_t n = b->n - from;
    if (n > CHUNK_MAX) { /* 250,000 tokens in one event */
        b->failed = true;
        return;
    }
    char *digit = b->p + from - 3;
    for (; n; n >>= 4)
        *digit-- = hex[n & 15];
    PUT_LITERAL(b, "\r\n");
}

static void put_head(struct buf *b, const struct serve_stream *s, const struct serve_identity *id,
                     const char *object) {
    bool chat = s->request.endpoint == SERVE_CHAT;
    buf_printf(b,
               "{\"id\":\"%s-%08" PRIx64 "%016" PRIx64 "\",\"object\":\"%s\",\"created\":%" PRId64
               ",\"model\":\"%s\",\"system_fingerprint\":\"%s\",\"choices\":[",
               chat ? "chatcmpl" : "cmpl", (uint64_t)id->started_s & 0xffffffff, s->serial, object,
               s->created_s, id->model, id->fingerprint);
}

int stream_head_build(struct serve_stream *s, const struct serve_identity *id) {
    struct buf b;
    buf_init(&b, 4096);
    PUT_LITERAL(&b, "data: ");
    put_head(&b, s, id,
             s->request.endpoint == SERVE_CHAT ? "chat.completion.chunk" : "text_completion");
    s->head = buf_take(&b, &s->head_bytes);
    return s->head ? 0 : -1;
}

static void put_usage(struct buf *b, const struct serve_stream *s, int64_t tokens) {
    buf_printf(b,
               ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64
               ",\"completion_tokens\":%" PRId64,
               s->request.isl, s->request.isl + tokens, tokens);
    if (s->cached_tokens >= 0)
        buf_printf(b, ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "}",
                   s->cached_tokens);
    buf_putc(b, '}');
}

static void put_tail(struct buf *b, const struct serve_stream *s, int64_t tokens) {
    buf_putc(b, ']');
    if (s->request.continuous_usage)
        put_usage(b, s, tokens);
    PUT_LITERAL(b, "}\n\n");
}

/* A blank and three letters: i in base 26. */
void serve_piece(int64_t i, char piece[SERVE_PIECE_BYTES]) {
    piece[0] = ' ';
    piece[1] = (char)('a' + i / 676 % 26);
    piece[2] = (char)('a' + i / 26 % 26);
    piece[3] = (char)('a' + i % 26);
}

static void put_pieces(struct buf *b, int64_t first, int64_t n) {
    for (int64_t i = first; i < first + n; i++) {
        char *to = buf_reserve(b, SERVE_PIECE_BYTES);
        if (!to)
            return;
        serve_piece(i, to);
        b->n += SERVE_PIECE_BYTES;
    }
}

void put_role_event(struct buf *b, const struct serve_stream *s) {
    size_t from = chunk_begin(b, s);
    buf_put(b, s->head, s->head_bytes);
    PUT_LITERAL(b, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                   "\"logprobs\":null,\"finish_reason\":null}");
    put_tail(b, s, 0);
    chunk_end(b, s, from);
}

int64_t put_token_event_bytes(const struct serve_stream *s, int64_t n) {
    return (int64_t)s->head_bytes + n * SERVE_PIECE_BYTES +
           (s->request.continuous_usage ? 160 : 80);
}

void put_token_event(struct buf *b, const struct serve_stream *s, int64_t first, int64_t n) {
    bool chat = s->request.endpoint == SERVE_CHAT;
    size_t from = chunk_begin(b, s);
    buf_put(b, s->head, s->head_bytes);
    if (chat)
        PUT_LITERAL(b, "{\"index\":0,\"delta\":{\"content\":\"");
    else
        PUT_LITERAL(b, "{\"index\":0,\"text\":\"");
    put_pieces(b, first, n);
    if (chat)
        PUT_LITERAL(b, "\"},\"logprobs\":null,\"finish_reason\":null}");
    else
        PUT_LITERAL(b, "\",\"logprobs\":null,\"finish_reason\":null}");
    put_tail(b, s, first + n);
    chunk_end(b, s, from);
}

static const char *finish_reason(const struct serve_stream *s) {
    return s->tokens >= s->request.osl ? "length" : "stop";
}

static void put_done(struct buf *b, const struct serve_stream *s) {
    size_t from = chunk_begin(b, s);
    PUT_LITERAL(b, "data: [DONE]\n\n");
    chunk_end(b, s, from);
}

void put_finish_events(struct buf *b, const struct serve_stream *s) {
    size_t from = chunk_begin(b, s);
    buf_put(b, s->head, s->head_bytes);
    buf_printf(b, "{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":\"%s\"}",
               s->request.endpoint == SERVE_CHAT ? "\"delta\":{}" : "\"text\":\"\"",
               finish_reason(s));
    put_tail(b, s, s->tokens);
    chunk_end(b, s, from);
    if (s->request.include_usage) {
        from = chunk_begin(b, s);
        buf_put(b, s->head, s->head_bytes);
        buf_putc(b, ']');
        put_usage(b, s, s->tokens);
        PUT_LITERAL(b, "}\n\n");
        chunk_end(b, s, from);
    }
    put_done(b, s);
}

static void put_error_object(struct buf *b, const struct serve_error *error) {
    PUT_LITERAL(b, "{\"error\":{\"message\":");
    put_json_string(b, error->message);
    PUT_LITERAL(b, ",\"type\":");
    put_json_string(b, error->type);
    PUT_LITERAL(b, ",\"param\":");
    if (error->param[0])
        put_json_string(b, error->param);
    else
        PUT_LITERAL(b, "null");
    buf_printf(b, ",\"code\":%d}}", error->status);
}

void put_error_event(struct buf *b, const struct serve_stream *s, const struct serve_error *error) {
    size_t from = chunk_begin(b, s);
    PUT_LITERAL(b, "data: ");
    put_error_object(b, error);
    PUT_LITERAL(b, "\n\n");
    chunk_end(b, s, from);
    put_done(b, s);
}

/* ---- whole bodies ---- */

void put_error_body(struct buf *b, const struct serve_error *error) {
    put_error_object(b, error);
}

void put_full_body(struct buf *b, const struct serve_stream *s, const struct serve_identity *id) {
    bool chat = s->request.endpoint == SERVE_CHAT;
    put_head(b, s, id, chat ? "chat.completion" : "text_completion");
    buf_puts(b, chat ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\""
                     : "{\"index\":0,\"text\":\"");
    put_pieces(b, 0, s->tokens);
    buf_printf(b, "%s,\"logprobs\":null,\"finish_reason\":\"%s\"}]", chat ? "\"}" : "\"",
               finish_reason(s));
    put_usage(b, s, s->tokens);
    buf_putc(b, '}');
}

void put_models_body(struct buf *b, const struct serve_identity *id) {
    buf_printf(
        b,
        "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":%" PRId64
        ",\"owned_by\":\"assay\",\"root\":\"%s\",\"parent\":null",
        id->model, id->started_s, id->model);
    if (id->max_context)
        buf_printf(b, ",\"max_model_len\":%" PRId64, id->max_context);
    PUT_LITERAL(b, ",\"assay\":{\"class\":");
    put_json_string(b, id->class_name);
    PUT_LITERAL(b, ",\"chip\":");
    put_json_string(b, id->chip_header);
    PUT_LITERAL(b, ",\"backend\":");
    put_json_string(b, id->backend);
    PUT_LITERAL(b, "}}]}");
}
