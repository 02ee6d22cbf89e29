/* A cluster as Slurm's topology.conf: a tree of switches, or blocks of hosts that share a device
 * switch. */
#ifndef TY_EXPORT_SLURM_H
#define TY_EXPORT_SLURM_H

#include "cluster.h"
#include "ty_topologies.h"

/**
 * Writes topology.conf for topology/block if hosts share NVLink domains: one block per domain.
 * @param has_blocks [out] false: no shared domains, nothing written
 * @return TY_EUNSUPPORTED if only some hosts share one, or blocks differ in size
 */
ty_status export_blocks(const ty_cluster *c, ty_text *text, bool *has_blocks,
                        ty_error *error) TY_MUST_CHECK;

/**
 * Writes topology.conf, with blocks or a tree; ignores `host`.
 * @return TY_EUNSUPPORTED if it cannot express the network, or if two hosts get the same name
 */
ty_status export_slurm(const ty_cluster *c, const char *host, ty_text *text,
                       ty_error *error) TY_MUST_CHECK;

/** Writes a valid Slurm name: replaces other characters by '_'. */
void write_slurm_name(ty_text *text, const char *name);

#endif
