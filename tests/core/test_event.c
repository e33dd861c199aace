/* The event's bounds: coarse, never too small, at most half as much again too large. */
#include "harness/core/event.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

Test(core_event, buckets_are_what_the_format_says) {
    static const int64_t want[] = {0, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000};
    for (int k = 0; k < (int)(sizeof want / sizeof want[0]); k++)
        cr_assert(eq(i64, event_bound_ns(k), want[k]), "%d", k);
    for (int k = 1; k < EVENT_BOUND_MAX; k++) {
        cr_assert(gt(i64, event_bound_ns(k + 1), event_bound_ns(k)));
        cr_assert(eq(i64, event_bound_bucket(event_bound_ns(k)), k));
        cr_assert(eq(i64, event_bound_bucket(event_bound_ns(k) + 1), k + 1));
    }
}

Test(core_event, a_bucket_is_never_below_the_bound) {
    cr_assert(eq(i64, event_bound_bucket(-5), 1));
    cr_assert(eq(i64, event_bound_bucket(0), 1));
    for (int64_t ns = 1; ns < INT64_C(1) << 48; ns += 1 + ns / 97) {
        int64_t bound = event_bound_ns(event_bound_bucket(ns));
        cr_assert(ge(i64, bound, ns));
        cr_assert(bound <= 1000 || 2 * bound <= 3 * (ns + 500), "%lld", (long long)ns);
    }
    cr_assert(eq(i64, event_bound_bucket(INT64_MAX - 499), EVENT_BOUND_MAX));
}
