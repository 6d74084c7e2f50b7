// The attribute of a kernel whose blocks form clusters of BARACUDA_CLUSTER, where that is set.
#pragma once

#ifdef BARACUDA_CLUSTER
#define BARACUDA_CLUSTER_DIMS __cluster_dims__(BARACUDA_CLUSTER, 1, 1)
#else
#define BARACUDA_CLUSTER_DIMS
#endif
