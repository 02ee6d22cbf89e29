/* Random plans whose flows contend for links: uneven replicas, pipelines, collectives of all kinds.
 */
#ifndef CONTENTION_H
#define CONTENTION_H

#include "scenario.h"

/* @param is_limited whether the rates of some messages are limited by software */
void random_contention(scenario *s, uint64_t *state, bool is_limited);
/* Splits the ranks of its stage replicas into TP, CP and EP, so that collectives run among some of
 * them, too; fewer ranks reduce expert gradients. */
void random_ranks(scenario *s, uint64_t *state);

#endif
