/* The log writer: takes full event blocks from the recording threads, encodes and hashes them at
 * once (so that the block is free again), and commits batches of blobs from its own thread and
 * connection.
 *
 * The recording side takes no lock: blocks travel through two bounded rings (full ones to the
 * writer, empty ones back), semaphores only count and wake. No transaction is open while the writer
 * waits, so that several runs on one store do not hold each other up. A batch is committed when it
 * is EVENT_FLUSH_NS old, full, or the last. Does not interpret events. */
#include "harness/core/clock.h"
#include "results/hash.h"
#include "results/store_internal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    POOL_BLOCKS =
        32, /* beside the one each sink holds: 131,072 events of slack for a slow commit */
    BATCH_BLOBS = 256,
    BATCH_BYTES = 2 * 1024 * 1024,
};

/* ---- bounded ring for many producers and consumers (D. Vyukov). Never full: it has a place for
 * every block. ---- */

struct cell {
    _Atomic uint64_t turn; /* position + 1 when filled, position + size when free again */
    struct event_block *block;
};
struct ring {
    struct cell *cell;
    uint64_t mask;
    _Alignas(64) _Atomic uint64_t tail; /* next to fill */
    _Alignas(64) _Atomic uint64_t head; /* next to empty */
};

static int ring_init(struct ring *r, size_t n) {
    size_t size = 1;
    while (size < n)
        size *= 2;
    r->cell = calloc(size, sizeof *r->cell);
    if (!r->cell)
        return -1;
    r->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        atomic_init(&r->cell[i].turn, i);
    atomic_init(&r->tail, 0);
    atomic_init(&r->head, 0);
    return 0;
}

static void ring_push(struct ring *r, struct event_block *k) {
    uint64_t at = atomic_fetch_add_explicit(&r->tail, 1, memory_order_relaxed);
    struct cell *c = &r->cell[at & r->mask];
    /* the cell was emptied long ago, or is just being emptied */
    while (atomic_load_explicit(&c->turn, memory_order_acquire) != at)
        sched_yield();
    c->block = k;
    atomic_store_explicit(&c->turn, at + 1, memory_order_release);
}

/* The caller has a semaphore's word that there is one: at most another thread is about to fill it.
 */
static struct event_block *ring_pop(struct ring *r) {
    uint64_t at = atomic_fetch_add_explicit(&r->head, 1, memory_order_relaxed);
    struct cell *c = &r->cell[at & r->mask];
    while (atomic_load_explicit(&c->turn, memory_order_acquire) != at + 1)
        sched_yield();
    struct event_block *k = c->block;
    atomic_store_explicit(&c->turn, at + r->mask + 1, memory_order_release);
    return k;
}

/* ---- the writer ---- */

struct port { /* one sink's end */
    struct log_writer *w;
    struct event_sink *sink;
    uint32_t thread;
    uint64_t next_sequence;
};
struct blob {
    uint32_t thread, events;
    uint64_t sequence;
    int64_t first_ns, last_ns;
    size_t offset, bytes;
    unsigned char sha256[SHA256_N];
};
struct log_writer {
    struct ring full, spare;
    sem_t nfull, nspare; /* nfull counts one more when the writer shall stop */
    _Atomic uint64_t stalls;
    _Atomic bool stop;  /* set before the last post of nfull */
    _Atomic int failed; /* ASSAY_E*; err is written before it, and never again */
    struct err err;
    struct event_block *pool;
    size_t pool_bytes;
    uint32_t threads;
    struct port *port;
    pthread_t thread;
    /* the writer thread's own */
    struct conn conn;
    sqlite3_stmt *insert;
    int64_t run_id;
    uint8_t *batch; /* BATCH_BYTES + one worst-case blob */
    size_t batch_bytes;
    int nblobs;
    struct blob blob[BATCH_BLOBS];
};

static void hand_out(struct port *p, struct event_block *k) {
    k->n = 0;
    k->thread = p->thread;
    k->sequence = p->next_sequence++;
    k->opened_ns = clock_now_ns();
}

/* event_flush_fn: on the recording thread. */
static struct event_block *hand_over(void *ctx, struct event_block *full) {
    struct port *p = ctx;
    struct log_writer *w = p->w;
    ring_push(&w->full, full);
    sem_post(&w->nfull);
    if (sem_trywait(&w->nspare)) {
        atomic_fetch_add_explicit(&w->stalls, 1, memory_order_relaxed);
        while (sem_wait(&w->nspare)) /* EINTR */
            ;
    }
    struct event_block *k = ring_pop(&w->spare);
    hand_out(p, k);
    return k;
}

static void encode(struct log_writer *w, const struct event_block *k) {
    struct blob *b = &w->blob[w->nblobs++];
    uint8_t *at = w->batch + w->batch_bytes;
    *b = (struct blob){.thread = k->thread,
                       .events = k->n,
                       .sequence = k->sequence,
                       .first_ns = k->time_ns[0],
                       .last_ns = k->time_ns[k->n - 1],
                       .offset = w->batch_bytes,
                       .bytes = eventlog_encode(k, at)};
    sha256(at, b->bytes, b->sha256);
    w->batch_bytes += b->bytes;
}

static int insert_batch(struct log_writer *w, struct err *e) {
    int rc = sql_begin(&w->conn, e);
    for (int i = 0; !rc && i < w->nblobs; i++) {
        const struct blob *b = &w->blob[i];
        bool row;
        rc = sql_bind(&w->conn, w->insert, e, "iiiiiihb", w->run_id, (int64_t)b->thread,
                      (int64_t)b->sequence, (int64_t)b->events, b->first_ns, b->last_ns, b->sha256,
                      (const void *)(w->batch + b->offset), b->bytes);
        if (!rc)
            rc = sql_step(&w->conn, w->insert, &row, e);
        sqlite3_reset(w->insert);
    }
    if (!rc)
        rc = sql_commit(&w->conn, e);
    if (rc)
        sql_rollback(&w->conn);
    return rc;
}

static void commit(struct log_writer *w) {
    if (w->nblobs && !atomic_load_explicit(&w->failed, memory_order_relaxed)) {
        struct err e = {0};
        int rc = insert_batch(w, &e);
        if (rc) {
            w->err = e;
            atomic_store_explicit(&w->failed, rc, memory_order_release);
        }
    }
    w->nblobs = 0;
    w->batch_bytes = 0;
}

static struct timespec to_timespec(int64_t ns) {
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* false: deadline_ns has passed (0 = none) */
static bool wait_full(struct log_writer *w, int64_t deadline_ns) {
    struct timespec t = to_timespec(deadline_ns);
    for (;;) {
        int rc = deadline_ns ? sem_clockwait(&w->nfull, CLOCK_MONOTONIC, &t) : sem_wait(&w->nfull);
        if (rc == 0)
            return true;
        if (errno == ETIMEDOUT)
            return false;
    }
}

static void *write_loop(void *arg) {
    struct log_writer *w = arg;
    int64_t deadline_ns = 0;
    for (;;) {
        if (!wait_full(w, w->nblobs ? deadline_ns : 0)) {
            commit(w);
            continue;
        }
        /* stop is posted after every block */
        if (atomic_load_explicit(&w->stop, memory_order_acquire) &&
            atomic_load_explicit(&w->full.head, memory_order_relaxed) ==
                atomic_load_explicit(&w->full.tail, memory_order_relaxed))
            break;
        struct event_block *k = ring_pop(&w->full);
        if (!atomic_load_explicit(&w->failed, memory_order_relaxed)) {
            if (!w->nblobs)
                deadline_ns = clock_now_ns() + EVENT_FLUSH_NS;
            encode(w, k);
        }
        ring_push(&w->spare, k);
        sem_post(&w->nspare);
        if (w->nblobs == BATCH_BLOBS || w->batch_bytes > BATCH_BYTES ||
            (w->nblobs && clock_now_ns() >= deadline_ns))
            commit(w);
    }
    commit(w);
    return NULL;
}

/* ---- life ---- */

static void log_writer_free(struct log_writer *w) {
    sqlite3_finalize(w->insert);
    conn_close(&w->conn);
    if (w->pool)
        munmap(w->pool, w->pool_bytes);
    sem_destroy(&w->nfull);
    sem_destroy(&w->nspare);
    free(w->full.cell);
    free(w->spare.cell);
    free(w->port);
    free(w->batch);
    free(w);
}

static int allocate(struct log_writer *w, uint32_t threads) {
    size_t n = (size_t)POOL_BLOCKS + threads;
    w->pool_bytes = n * sizeof(struct event_block);
    w->port = calloc(threads, sizeof *w->port);
    w->batch = malloc((size_t)BATCH_BYTES + EVENTLOG_BLOCK_MAX_BYTES);
    if (!w->port || !w->batch || ring_init(&w->full, n) || ring_init(&w->spare, n))
        return -1;
    /* touched now, so that no page fault falls into the run */
    void *p = mmap(NULL, w->pool_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        return -1;
    w->pool = p;
    return 0;
}

int log_writer_open(struct store *s, const struct run_handle *h, uint32_t threads,
                    struct event_sink *sinks, struct log_writer **out, struct err *e) {
    *out = NULL;
    if (threads == 0 || threads > EVENTLOG_THREADS_MAX)
        return err_set(e, ASSAY_EUSAGE, "a log writer serves 1 to 65536 threads, not %u",
                       (unsigned)threads);
    struct log_writer *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    if (!w)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    memset(w, 0, sizeof *w);
    w->run_id = h->run_id;
    w->threads = threads;
    sem_init(&w->nfull, 0, 0);
    sem_init(&w->nspare, 0, POOL_BLOCKS);
    int rc = allocate(w, threads) ? err_set(e, ASSAY_ENOMEM, "out of memory for the event log") : 0;
    if (!rc)
        rc = conn_open(&w->conn, s->c.path, CONN_WRITE, e);
    if (rc)
        goto fail;
    sqlite3_db_config(w->conn.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    rc = conn_settings(&w->conn, true, e);
    if (!rc)
        rc = sql_prepare(&w->conn, "INSERT INTO chunk VALUES(?,?,?,?,?,?,?,?)", &w->insert, e);
    if (rc)
        goto fail;
    conn_restrict(&w->conn);
    for (uint32_t i = 0; i < threads; i++) {
        w->port[i] = (struct port){.w = w, .sink = &sinks[i], .thread = i};
        hand_out(&w->port[i], &w->pool[i]);
        sinks[i] =
            (struct event_sink){.block = &w->pool[i], .flush = hand_over, .ctx = &w->port[i]};
    }
    for (size_t i = 0; i < POOL_BLOCKS; i++)
        ring_push(&w->spare, &w->pool[threads + i]);

    /* signals are for the driver */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int q = pthread_create(&w->thread, NULL, write_loop, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (q) {
        rc = err_errno(e, ASSAY_EENV, q, "cannot start the log writer");
        goto fail;
    }
    *out = w;
    return 0;
fail:
    log_writer_free(w);
    return rc;
}

int log_writer_error(struct log_writer *w, struct err *e) {
    int rc = atomic_load_explicit(&w->failed, memory_order_acquire);
    if (rc && e)
        *e = w->err;
    return rc;
}

uint64_t log_writer_stalls(const struct log_writer *w) {
    return atomic_load_explicit(&w->stalls, memory_order_relaxed);
}

int log_writer_close(struct log_writer *w, uint64_t *chunks, uint64_t *bytes,
                     unsigned char digest[32], struct err *e) {
    for (uint32_t i = 0; i < w->threads; i++) {
        event_sink_flush(w->port[i].sink);
        *w->port[i].sink = (struct event_sink){0};
    }
    atomic_store_explicit(&w->stop, true, memory_order_release);
    sem_post(&w->nfull);
    pthread_join(w->thread, NULL);
    int rc = log_writer_error(w, e);
    if (!rc)
        rc = log_digest(&w->conn, w->run_id, chunks, bytes, digest, e);
    log_writer_free(w);
    return rc;
}
