/* The tpu-sim backend's name for its own arithmetic. The vtable is backend_tpu_sim in
 * backends/backend.h; the parts have headers of their own (chip, kernel, collective, step, engine,
 * train). */
#ifndef BACKENDS_TPU_SIM_TPU_SIM_H
#define BACKENDS_TPU_SIM_TPU_SIM_H

/* Changes whenever the same chip file and workload may give other times. */
#define TPU_SIM_VERSION "2"

#endif
