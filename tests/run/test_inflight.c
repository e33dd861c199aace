/* The driver's containers against plain models. */
#include "harness/core/rng.h"
#include "harness/run/inflight.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

Test(run_inflight, random_puts_and_takes_agree_with_a_table) {
    enum { IDS = 4000, STEPS = 200000 };
    static int64_t there[IDS]; /* intended time + 1; 0 = absent */
    struct inflight f;
    struct rng r;
    rng_seed(&r, 3);
    cr_assert(eq(int, inflight_init(&f, 4), 0));
    for (int i = 0; i < STEPS; i++) {
        uint64_t id = rng_below(&r, IDS);
        struct request q = {.id = id, .isl = (uint32_t)id}, out;
        int64_t t;
        if (!there[id]) {
            there[id] = i + 1;
            cr_assert(eq(int, inflight_put(&f, &q, i), 0));
        } else {
            cr_assert(eq(int, inflight_take(&f, id, &out, &t), 0));
            cr_assert(eq(i64, t + 1, there[id]));
            cr_assert(eq(u64, out.isl, id));
            there[id] = 0;
            cr_assert(eq(int, inflight_take(&f, id, &out, &t), -1));
        }
    }
    inflight_release(&f);
}

Test(run_inflight, turns_of_a_session_are_taken_out_and_the_order_stays) {
    struct turn_heap h = {0};
    struct rng r;
    struct turn t;
    rng_seed(&r, 5);
    for (uint64_t i = 0; i < 2000; i++) {
        t = (struct turn){.at_ns = (int64_t)rng_below(&r, 100), .request = {.id = i, .session = i % 7}};
        cr_assert(eq(int, turn_heap_push(&h, &t), 0));
    }
    int taken = 0;
    while (turn_heap_take_session(&h, 3, &t)) {
        cr_assert(eq(u64, t.request.session, 3));
        taken++;
    }
    cr_assert(eq(int, taken, 286)); /* 3, 10, …, 1998 */
    cr_assert(eq(sz, h.n, 2000 - 286));
    struct turn last = {.at_ns = -1};
    while (h.n) {
        t = turn_heap_pop(&h);
        cr_assert(ne(u64, t.request.session, 3));
        cr_assert(t.at_ns > last.at_ns || (t.at_ns == last.at_ns && t.request.id > last.request.id));
        last = t;
    }
    turn_heap_release(&h);
}

Test(run_inflight, turns_come_out_by_time_then_id) {
    struct turn_heap h = {0};
    struct rng r;
    rng_seed(&r, 4);
    for (uint64_t i = 0; i < 5000; i++) {
        struct turn t = {.at_ns = (int64_t)rng_below(&r, 100), .request.id = i};
        cr_assert(eq(int, turn_heap_push(&h, &t), 0));
    }
    struct turn last = {.at_ns = -1};
    while (h.n) {
        cr_assert(eq(i64, turn_heap_top(&h), h.t[0].at_ns));
        struct turn t = turn_heap_pop(&h);
        cr_assert(t.at_ns > last.at_ns || (t.at_ns == last.at_ns && t.request.id > last.request.id));
        last = t;
    }
    cr_assert(eq(i64, turn_heap_top(&h), INT64_MAX));
    turn_heap_release(&h);
}
