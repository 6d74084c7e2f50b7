// The three causal convolutions as a plan would have settled them: `ELEMENT`, `STORED` (taps, bias, their gradients),
// `OFFSET` (cu_seqlens) and what Variant and Schedule below ask for come from the test.
#include <baracuda/convolution/causal_conv1d.cuh>
#include <baracuda/convolution/causal_conv1d_backward.cuh>
#include <baracuda/convolution/causal_conv1d_update.cuh>

using namespace baracuda;

struct Variant {
    static constexpr int WIDTH = TAPS, STATE = STATE_STEPS;
    static constexpr bool SILU = USE_SILU, HAS_BIAS = BIAS, HAS_DB = BIAS, HAS_INITIAL_STATES = STATES,
                          HAS_FINAL_STATES = STATES, HAS_DFINAL_STATES = STATES, HAS_DINITIAL_STATES = STATES,
                          HAS_CU_SEQLENS = VARLEN, PACKED = LAYOUT == 0, CHANNELS_LAST = LAYOUT == 1;
};

struct Schedule {
    static constexpr int THREADS = BLOCK, LANES = ACROSS, OWNED = OWNED_CHANNELS, STEPS = TILES, BATCH = AHEAD,
                         TIME = STEPS_OF_TILE, SLICES = 8;
};

struct Forward {
    Strided<const ELEMENT, 3> x;
    Strided<const STORED, 2> weight;
    Strided<const STORED, 1> bias;
    Strided<const ELEMENT, 3> initial_states;
    Strided<const OFFSET, 1> cu_seqlens;
    Strided<ELEMENT, 3> y, final_states;
    long long batch_size, channels, seq_len, width, num_sequences, use_silu;
};

struct Backward {
    Strided<const ELEMENT, 3> x;
    Strided<const STORED, 2> weight;
    Strided<const STORED, 1> bias;
    Strided<const ELEMENT, 3> dy, initial_states, dfinal_states;
    Strided<const OFFSET, 1> cu_seqlens;
    Strided<ELEMENT, 3> dx;
    Strided<STORED, 2> dw;
    Strided<STORED, 1> db;
    Strided<ELEMENT, 3> dinitial_states;
    long long batch_size, channels, seq_len, width, num_sequences, use_silu;
    acc_of<ELEMENT>* partials;
};

struct Update {
    Strided<const ELEMENT, 3> x;
    Strided<const STORED, 2> weight;
    Strided<const STORED, 1> bias;
    Strided<ELEMENT, 3> conv_state, y;
    long long batch_size, channels, seq_len, width, state_len, use_silu;
};

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(BLOCK) forward(__grid_constant__ const Forward args) {
    causal_conv1d_main<ELEMENT, Schedule, Variant>(args);
}
#endif
#ifdef BACKWARD
extern "C" __global__ void __launch_bounds__(BLOCK) backward(__grid_constant__ const Backward args) {
    causal_conv1d_backward_main<ELEMENT, Schedule, Variant>(args);
}
#endif
#ifdef FOLD
extern "C" __global__ void __launch_bounds__(BLOCK) fold(__grid_constant__ const Backward args) {
    causal_conv1d_backward_fold<ELEMENT, Schedule, Variant>(args);
}
#endif
#ifdef UPDATE
extern "C" __global__ void __launch_bounds__(BLOCK) update(__grid_constant__ const Update args) {
    causal_conv1d_update_main<ELEMENT, Schedule, Variant>(args);
}
#endif
