#include "server/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace quire::server {
namespace {

using ::testing::HasSubstr;

MetricsInfo Info(std::string model_name, std::string version) {
  MetricsInfo info;
  info.model_name = std::move(model_name);
  info.version = std::move(version);
  return info;
}

// "name{labels}" -> value of every sample.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto space = line.rfind(' ');
    const bool is_new =
        out.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second;
    EXPECT_TRUE(is_new) << "twice: " << line;
  }
  return out;
}

engine::EngineStats SomeStats() {
  engine::EngineStats stats;
  stats.sequence_number = 5;
  stats.blocks.capacity = 1000;
  stats.blocks.block_size = 16;
  stats.blocks.active = 1;
  stats.blocks.cached = 399;
  stats.blocks.free = 600;
  stats.blocks.useful_slots = 4;
  stats.finished_stop = 3;
  stats.cancelled = 2;
  stats.requests_received = 5;
  stats.time_to_first_token.bounds = {0.001, 0.5, 2560};
  stats.time_to_first_token.counts = {1, 2, 0, 4};
  stats.time_to_first_token.sum = 12.5;
  stats.time_to_first_token.count = 7;
  return stats;
}

std::string Text(const engine::EngineStats& stats, const MetricsInfo& info) {
  return MetricsText(stats, absl::Seconds(3), /*serving=*/true, info);
}

TEST(MetricsText, BlockStatesAddUpToTheCapacity) {
  auto samples = Samples(Text(SomeStats(), Info("m", "1")));
  EXPECT_EQ(samples.at("quire_kv_blocks{state=\"active\"}"), 1);
  EXPECT_EQ(samples.at("quire_kv_blocks{state=\"cached\"}"), 399);
  EXPECT_EQ(samples.at("quire_kv_blocks{state=\"free\"}"), 600);
  EXPECT_EQ(samples.at("quire_kv_blocks_capacity"), 1000);
  EXPECT_EQ(samples.at("quire_kv_useful_slot_ratio"), 0.25);
}

TEST(MetricsText, C102_UsageIsTheActiveShareBetweenZeroAndOne) {
  const std::string key = "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"}";
  EXPECT_EQ(Samples(Text(SomeStats(), Info("m", ""))).at(key), 0.001);
  engine::EngineStats full;
  full.blocks.capacity = full.blocks.active = 8;
  EXPECT_EQ(Samples(Text(full, Info("m", ""))).at(key), 1);
  EXPECT_EQ(Samples(Text({}, Info("m", ""))).at(key), 0);
}

TEST(MetricsText, C105_HistogramsAreCumulativeAndEndWithTheirCount) {
  auto samples = Samples(Text(SomeStats(), Info("m", "")));
  for (const std::string name :
       {"quire_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"}) {
    const std::string labels = name[0] == 'q' ? "" : "model_name=\"m\",engine=\"0\",";
    EXPECT_EQ(samples.at(name + "_bucket{" + labels + "le=\"0.001\"}"), 1);
    EXPECT_EQ(samples.at(name + "_bucket{" + labels + "le=\"0.5\"}"), 3);
    EXPECT_EQ(samples.at(name + "_bucket{" + labels + "le=\"2560\"}"), 3);
    EXPECT_EQ(samples.at(name + "_bucket{" + labels + "le=\"+Inf\"}"), 7);
  }
  EXPECT_EQ(samples.at("quire_time_to_first_token_seconds_sum"), 12.5);
  EXPECT_EQ(samples.at("quire_time_to_first_token_seconds_count"), 7);
}

TEST(MetricsText, HasTheNamesThatOthersRead) {
  const auto samples = Samples(Text(SomeStats(), Info("m", "1.2")));
  const std::string vllm = "{model_name=\"m\",engine=\"0\"";
  for (const std::string name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
        "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total",
        "prompt_tokens_total", "prompt_tokens_cached_total", "generation_tokens_total"}) {
    EXPECT_EQ(samples.count("vllm:" + name + vllm + "}"), 1u) << name;
  }
  for (const std::string name :
       {"time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "iteration_tokens_total", "request_prompt_tokens", "request_generation_tokens"}) {
    EXPECT_EQ(samples.count("vllm:" + name + "_count" + vllm + "}"), 1u) << name;
  }
  EXPECT_EQ(samples.at("vllm:request_success_total" + vllm + ",finished_reason=\"stop\"}"), 3);
  EXPECT_EQ(samples.at("vllm:cache_config_info" + vllm +
                       ",block_size=\"16\",num_gpu_blocks=\"1000\",cache_dtype=\"\","
                       "enable_prefix_caching=\"True\"}"),
            1);
  EXPECT_EQ(samples.at("quire_info{version=\"1.2\",model_name=\"m\"}"), 1);
  EXPECT_EQ(samples.at("quire_requests_total{outcome=\"cancelled\"}"), 2);
}

TEST(MetricsText, CausesAreLabels) {
  engine::EngineStats stats = SomeStats();
  stats.blocks.logical_blocks = 4;
  stats.blocks.leased = 30;
  stats.blocks.sessions = 2;
  stats.blocks.evictions = 10;
  stats.blocks.evictions_leased = 3;
  stats.blocks.dropped_by_reset = 4;
  stats.blocks.leases_expired = 5;
  stats.blocks.leases_displaced = 6;
  auto& s = stats.scheduler;
  s.prefix_hit_tokens = 1000;
  s.prefix_hit_tokens_session = 300;
  s.prefix_hit_tokens_in_flight = 200;
  s.prefix_hit_tokens_after_preemption = 70;
  s.fork_shared_tokens = 60;
  s.prefix_misses.never_seen = 1;
  s.prefix_misses.evicted = 2;
  s.prefix_misses.other_salt = 3;
  s.prefix_misses.partial_block = 4;
  s.prefix_misses.not_finished = 5;
  s.prefix_misses.bypassed = 6;
  s.waiting_because = {
      .slots = 1, .blocks = 2, .watermark = 3, .prefix_in_flight = 4, .turn = 5, .budget = 6};
  s.prefill_cap = 99;
  stats.time = absl::UnixEpoch() + absl::Seconds(10);
  s.oldest_waiting_arrival = absl::UnixEpoch() + absl::Seconds(7);
  stats.prompt_tokens = 50;
  stats.cached_prompt_tokens = 20;
  const auto samples = Samples(Text(stats, Info("m", "1")));
  const auto labelled = [&](const std::string& name, const char* key,
                            const std::map<std::string, double>& expected) {
    for (const auto& [label, value] : expected) {
      const std::string sample = name + "{" + key + "=\"" + label + "\"}";
      ASSERT_EQ(samples.count(sample), 1u) << sample;
      EXPECT_EQ(samples.at(sample), value) << sample;
    }
  };
  labelled("quire_kv_block_evictions_total", "reason",
           {{"cached", 7}, {"leased", 3}, {"reset", 4}});
  labelled("quire_session_leases_lost_total", "reason", {{"expired", 5}, {"displaced", 6}});
  labelled("quire_prefix_hit_tokens_total", "source",
           {{"first_time", 500},
            {"session", 300},
            {"in_flight", 200},
            {"after_preemption", 70},
            {"fork", 60}});
  labelled("quire_prefix_miss_tokens_total", "reason",
           {{"never_seen", 1},
            {"evicted", 2},
            {"other_salt", 3},
            {"partial_block", 4},
            {"not_finished_yet", 5},
            {"bypassed", 6}});
  labelled("quire_waiting_sequences", "reason",
           {{"slots", 1},
            {"blocks", 2},
            {"watermark", 3},
            {"prefix_in_flight", 4},
            {"turn", 5},
            {"budget", 6}});
  EXPECT_EQ(samples.at("quire_kv_sharing_ratio"), 4);
  EXPECT_EQ(samples.at("quire_kv_blocks_leased"), 30);
  EXPECT_EQ(samples.at("quire_sessions"), 2);
  EXPECT_EQ(samples.at("quire_prefill_cap_tokens"), 99);
  EXPECT_EQ(samples.at("quire_oldest_waiting_seconds"), 3);
  const std::string vllm = "{model_name=\"m\",engine=\"0\",";
  EXPECT_EQ(samples.at("vllm:num_requests_waiting_by_reason" + vllm + "reason=\"capacity\"}"), 12);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting_by_reason" + vllm + "reason=\"deferred\"}"), 9);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_by_source_total" + vllm + "source=\"local_compute\"}"),
            30);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_by_source_total" + vllm + "source=\"local_cache_hit\"}"),
            20);
}

TEST(MetricsText, NothingWaitsWhenNobodyDoes) {
  EXPECT_EQ(Samples(Text(SomeStats(), Info("m", ""))).at("quire_oldest_waiting_seconds"), 0);
}

TEST(MetricsText, EveryLineIsValidExpositionFormat) {
  std::istringstream lines(Text(SomeStats(), Info("m", "1")));
  const std::regex sample(
      R"re([a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? [-+0-9.einfa]+)re");
  const std::regex comment(
      R"re(# (HELP [a-zA-Z0-9_:]+ .+|TYPE [a-zA-Z0-9_:]+ (gauge|counter|histogram)))re");
  std::set<std::string> families;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(std::regex_match(line, line[0] == '#' ? comment : sample)) << line;
    if (line.rfind("# TYPE ", 0) == 0) {
      EXPECT_TRUE(families.insert(line.substr(7, line.find(' ', 7) - 7)).second) << line;
    }
  }
  EXPECT_GT(families.size(), 50u);
}

TEST(MetricsText, ModelNamesCannotForgeLines) {
  const std::string text = Text(SomeStats(), Info("a\"b\\c\nd 1", "1"));
  EXPECT_THAT(text, HasSubstr(R"(model_name="a\"b\\c\nd 1")"));
  EXPECT_EQ(text.find("\nd 1"), std::string::npos);
}

TEST(MetricsText, CountersBeyondFloatPrecisionStayExact) {
  engine::EngineStats stats;
  stats.generation_tokens = (1LL << 53) - 1;
  EXPECT_THAT(Text(stats, Info("m", "1")),
              HasSubstr("quire_generation_tokens_total 9007199254740991\n"));
}

}  // namespace
}  // namespace quire::server
