/* A cluster as Slurm's topology.conf: a tree of switches, or blocks of hosts that share a switch
 * among their devices. */
#ifndef TY_EXPORT_SLURM_H
#define TY_EXPORT_SLURM_H

#include "cluster.h"
#include "ty_topologies.h"

/**
 * Writes topology.conf of topology/block where hosts share NVLink domains: a block each.
 * @param has_blocks [out] false: nothing is shared, nothing was written
 * @return TY_EUNSUPPORTED where only some hosts share one, or blocks differ in size
 */
ty_status export_blocks(const ty_cluster *c, ty_text *text, bool *has_blocks,
                        ty_error *error) TY_MUST_CHECK;

/**
 * Writes topology.conf, of blocks or of a tree; `host` is none.
 * @return TY_EUNSUPPORTED where it has no words for the network, or one name for two of its hosts
 */
ty_status export_slurm(const ty_cluster *c, const char *host, ty_text *text,
                       ty_error *error) TY_MUST_CHECK;

/** A name as Slurm takes it: other characters than its names have become '_'. */
void write_slurm_name(ty_text *text, const char *name);

#endif
