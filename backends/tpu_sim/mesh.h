/* The search of a training mesh: every way to spread a slice's devices over the axes, those that fit in HBM, and the fastest.
 *
 * A mesh is left out when it does not divide the model's heads, columns or experts, the global batch or the sequence.
 * Memory of a device: the state of train.h (weights, gradients, moments) and the activations that the remat policy keeps:
 *   full     the input of every layer, and one layer at work
 *   minimal  the outputs of products and of attention, too
 *   none     every result
 * each as the op graph has them in bf16, heads, columns and experts split over `tensor` and `expert`, rows of the hidden size
 * whole (Korthikanti et al., arXiv:2205.05198, section 4.1), and the f32 logits of the device's tokens with their bf16 gradient. */
#ifndef BACKENDS_TPU_SIM_MESH_H
#define BACKENDS_TPU_SIM_MESH_H

#include "backends/tpu_sim/train.h"

#include <jansson.h>
#include <stdbool.h>

struct mesh_row {
    int64_t data, fsdp, tensor, expert, context;
    double s, compute_s, exposed_comm_s, optimizer_s;
    double state_bytes, activation_bytes;
    bool fits, frontier; /* frontier: no mesh that fits is faster with as little memory */
};
struct mesh_search {
    struct mesh_row *row; /* by rising step time, those that fit first; heap */
    size_t n, divides, fits;
    double hbm_bytes; /* of a device */
};

/* Axes that `given` names are kept. On success row[0] is the fastest that fits. ASSAY_EINPUT: none fits, and by how much.
 * Release it always. */
int mesh_search(const struct chip *c, const struct model *m, const struct train_options *given, struct mesh_search *out,
                struct err *e) MUST_USE;
void mesh_search_release(struct mesh_search *s);

/* Bytes of activations a device keeps; a mesh with all axes set. */
int mesh_activation_bytes(const struct chip *c, const struct model *m, const struct train_options *o, double *bytes,
                          struct err *e) MUST_USE;

void mesh_print(const struct mesh_row *r, char *out, size_t bytes); /* "fsdp:32,tensor:8": axes above 1 */
/* {considered, divide, fit, hbm_bytes, meshes: the winner, the frontier and the fastest others, at most `most` rows}. */
json_t *mesh_search_json(const struct mesh_search *s, size_t most);

#endif
