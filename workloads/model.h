/* A model's shape, from a Hugging Face config.json.
 *
 * Facts only: what the layers are, how many parameters and KV bytes follow. Times belong to backends.
 * Files: workloads/models/NAME.json = the config.json fields of the published model, plus "$name",
 * "$source" (where the config was read) and "$parameters_published" (for the test). A file with
 * "$alias" takes its shape from another model of the folder. Schema: schemas/model.json. */
#ifndef WORKLOADS_MODEL_H
#define WORKLOADS_MODEL_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { MODEL_NAME_MAX = 64 };

struct model {
    char name[MODEL_NAME_MAX];
    char family[32]; /* model_type of the config */
    int64_t layers, hidden, heads, kv_heads, head_dim, vocab, max_context;
    int64_t ffn;    /* intermediate size of a dense layer (gate/up width) */
    bool gated_ffn; /* SwiGLU-like: three matrices instead of two */
    bool tied_embeddings;
    bool qkv_bias, qk_norm;
    bool o_bias, ffn_bias;   /* ffn_bias: of a dense layer or of each expert */
    bool attention_sinks;    /* one learned logit a head (GPT-OSS) */
    bool router_bias;        /* one more parameter an expert in the router */
    int64_t norms_per_layer; /* RMS norms over hidden: 2, or 4 (Gemma 2, 3) */
    /* mixture of experts; experts = 0 when dense */
    int64_t experts, experts_per_token, expert_ffn, shared_experts, shared_expert_ffn;
    int64_t dense_layers; /* first layers that stay dense (DeepSeek); 0 otherwise */
    /* multi-head latent attention; kv_lora_rank = 0 when absent. q_lora_rank = 0: q is one matrix */
    int64_t q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t sliding_window; /* tokens; 0 = full attention */
    int64_t sliding_every;  /* of each this many layers the last is full (Gemma, GPT-OSS 2);
                                 0 = none slide; layers + 1 = all slide */
    char dtype[16];         /* torch_dtype: "bfloat16", … */
};

/* Parameters: all, and those a token passes through (in a mixture of experts only the experts it is
 * routed to; equal to all when dense), and those of the input embedding table.
 * Exact integers from the shapes; norms and biases included; a multi-token-prediction module not. */
int64_t model_parameters(const struct model *m);
int64_t model_active_parameters(const struct model *m);
int64_t model_embedding_parameters(const struct model *m);

/* Active parameters that cost arithmetic: without the input table, which is a gather, with the
 * output projection (also when it shares the table). 2 * this = FLOPs of one token without attention.
 * Published "active" figures of GPT-OSS and DeepSeek count so; Mixtral's count the table too. */
int64_t model_matmul_parameters(const struct model *m);

/* Layers with full attention; the rest sees sliding_window tokens. */
int64_t model_full_attention_layers(const struct model *m);

/* Bytes of KV cache per token over all layers, bytes_per_element of the cache's dtype.
 * 2*layers*kv_heads*head_dim*bytes, or layers*(kv_lora_rank+qk_rope_head_dim)*bytes under MLA. A
 * sliding layer stops growing at its window: subtract with model_full_attention_layers.
 * Source: DeepMind, How to Scale Your Model, inference chapter. */
int64_t model_kv_bytes_per_token(const struct model *m, double bytes_per_element);

/* name: one of workloads/models, or the path of a config.json (contains '/' or ends in .json). */
int model_load(const char *name, struct model *m, struct err *e) MUST_USE;

/* The JSON that model_load reads, alias resolved and "$name" set; a new reference. */
int model_json(const char *name, json_t **out, struct err *e) MUST_USE;
/* file, pointer: the place in messages ("chat.json", "/model"). Members that no field here depends on
 * are ignored: config.json files carry many. */
int model_from_json(const json_t *json, const char *file, const char *pointer, struct model *m,
                    struct err *e) MUST_USE;

#endif
