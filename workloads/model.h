/* A model's shape, from a Hugging Face config.json.
 *
 * Facts only: what the layers are, how many parameters and KV bytes follow. Times belong to backends.
 * Files: workloads/models/NAME.json = the config.json fields of the published model, plus "$name",
 * "$source" (where the config was read) and "$parameters_published" (for the test). */
#ifndef WORKLOADS_MODEL_H
#define WORKLOADS_MODEL_H

#include "harness/core/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_NAME_MAX = 64 };

struct model {
    char name[MODEL_NAME_MAX];
    char family[32]; /* model_type of the config */
    int64_t layers, hidden, heads, kv_heads, head_dim, vocab, max_context;
    int64_t ffn;              /* intermediate size of a dense layer (gate/up width) */
    bool gated_ffn;           /* SwiGLU-like: three matrices instead of two */
    bool tied_embeddings;
    bool qkv_bias, qk_norm;
    /* mixture of experts; experts = 0 when dense */
    int64_t experts, experts_per_token, expert_ffn, shared_experts, shared_expert_ffn;
    int64_t dense_layers;     /* first layers that stay dense (DeepSeek); 0 otherwise */
    /* multi-head latent attention; kv_lora_rank = 0 when absent */
    int64_t q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t sliding_window;   /* tokens; 0 = full attention */
    int64_t sliding_every;    /* of each this many layers one is full (Gemma, GPT-OSS 2); 0 = none slide */
    char dtype[16];           /* torch_dtype: "bfloat16", … */
};

/* Parameters: all, and those used for one token (MoE), and those of the embedding table.
 * Exact integers from the shapes; norms and biases included. */
int64_t model_parameters(const struct model *m);
int64_t model_active_parameters(const struct model *m);
int64_t model_embedding_parameters(const struct model *m);

/* Bytes of KV cache per token over all layers, bytes_per_element of the cache's dtype.
 * 2*layers*kv_heads*head_dim*bytes, or layers*(kv_lora_rank+qk_rope_head_dim)*bytes under MLA.
 * Source: tpu-simulator.md section 4. */
int64_t model_kv_bytes_per_token(const struct model *m, double bytes_per_element);

/* name: one of workloads/models, or the path of a config.json (contains '/' or ends in .json). */
int model_load(const char *name, struct model *m, struct err *e) MUST_USE;

#endif
