/* serve under ThreadSanitizer and under churn: many clients at once, some of which leave half-way,
 * slowly reading ones, and a stop in the middle. Fails when a stream that was read to its end is
 * not whole. */
#include "tests/backends/serve_fixture.h"

enum { CLIENTS = 12, ROUNDS = 25, TOKENS = 20 };

static struct fixture x;
static _Atomic int whole, cut, broken;

static void *client(void *ctx) {
    uint64_t n = (uint64_t)(uintptr_t)ctx;
    struct reader *r = calloc(1, sizeof *r);
    struct stream *s = calloc(1, sizeof *s);
    r->fd = dial(&x);
    for (int i = 0; i < ROUNDS; i++, n = n * 6364136223846793005u + 1442695040888963407u) {
        bool chat = n >> 40 & 1, stream = n >> 41 & 3, leave = (n >> 44 & 7) == 0;
        char body[256];
        snprintf(body, sizeof body, "{%s,\"max_tokens\":%d,\"stream\":%s}",
                 chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
                      : "\"prompt\":\"hi\"",
                 TOKENS, stream ? "true" : "false");
        post(r->fd, chat ? "/v1/chat/completions" : "/v1/completions", body);
        if (leave) {
            usleep(n >> 50);
            close(r->fd);
            *r = (struct reader){.fd = dial(&x)};
            atomic_fetch_add(&cut, 1);
            continue;
        }
        struct answer a = read_answer(r);
        if (stream)
            *s = read_stream(&a);
        if (a.status != 200 || a.broken ||
            (stream && (s->broken || s->tokens_events != TOKENS || s->done != 1))) {
            fprintf(stderr, "broken: %d %s %s\n", a.status, a.broken ? a.broken : "",
                    a.body ? a.body : "");
            atomic_fetch_add(&broken, 1);
        }
        atomic_fetch_add(&whole, 1);
        answer_free(&a);
    }
    close(r->fd);
    free(r);
    free(s);
    return NULL;
}

/* Streams without end, to be cut by the stop. */
static void *victim(void *ctx) {
    (void)ctx;
    struct answer a =
        ask(&x, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":1000000,\"stream\":true}");
    if (a.status != 200 || !a.body || !strstr(a.body, "shutting down"))
        atomic_fetch_add(&broken, 1);
    answer_free(&a);
    return NULL;
}

int main(void) {
    pthread_t t[CLIENTS], v[3];
    x.fake = (struct fake_options){.ttft_ns = 100000, .tpot_ns = 50000, .batch = 8, .cached = 1};
    fixture_start(&x);
    for (int i = 0; i < CLIENTS; i++)
        if (pthread_create(&t[i], NULL, client, (void *)(uintptr_t)(i + 1)))
            abort();
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 3; i++)
        if (pthread_create(&v[i], NULL, victim, NULL))
            abort();
    usleep(100000);
    fixture_stop(&x);
    for (int i = 0; i < 3; i++)
        pthread_join(v[i], NULL);
    printf("serve_threads: %d answers whole, %d clients left early, %d broken, %" PRId64
           " dropped\n",
           whole, cut, broken, x.stats.dropped);
    return broken || x.rc || whole + cut != CLIENTS * ROUNDS;
}
