//! Limits the number of partitions that run at the same time.
//!
//! A join of two data sets runs part by part, and each running part needs memory. Without
//! [`Chain`], the engine would start all parts at once. `Chain` distributes the parts over as many
//! streams as there are threads, and each stream runs its parts one after another.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::{StreamExt, TryStreamExt, stream};

/// Inserts a [`Chain`] below each operator that exchanges rows between partitions, if its input has
/// more partitions than there are threads.
#[derive(Debug)]
pub struct ChainPartitions;

impl PhysicalOptimizerRule for ChainPartitions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let streams = config.execution.target_partitions;
        let chained = plan.transform_up(|node| below_exchange(node, streams))?.data;
        Ok(chain(&chained, streams))
    }

    fn name(&self) -> &str {
        "chain_partitions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn below_exchange(
    node: Arc<dyn ExecutionPlan>,
    streams: usize,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let is_unordered = node.downcast_ref::<CoalescePartitionsExec>().is_some()
        || node.downcast_ref::<RepartitionExec>().is_some_and(|one| !one.preserve_order());
    let child = node.children().first().map(|child| Arc::clone(child));
    let Some(child) = child.filter(|child| partitions(child) > streams) else {
        return Ok(Transformed::no(node));
    };
    let replaced = if is_unordered {
        chain(&child, streams)
    } else if node.downcast_ref::<SortPreservingMergeExec>().is_some()
        && child.downcast_ref::<SortExec>().is_some()
    {
        // A sort accepts its input in any order, so the input may be chained.
        let inputs = child.children().into_iter().map(|input| chain(input, streams)).collect();
        replace(child, inputs)?
    } else {
        return Ok(Transformed::no(node));
    };
    Ok(Transformed::yes(replace(node, vec![replaced])?))
}

fn replace(
    node: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, options)
}

/// Wraps a plan in a [`Chain`], if the plan has more partitions than `streams` and its output is
/// unordered.
fn chain(plan: &Arc<dyn ExecutionPlan>, streams: usize) -> Arc<dyn ExecutionPlan> {
    if partitions(plan) <= streams || plan.output_ordering().is_some() {
        return Arc::clone(plan);
    }
    Arc::new(Chain::new(Arc::clone(plan), streams))
}

fn partitions(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}

/// Runs the partitions of its input in several streams. Each stream runs one partition at a time.
#[derive(Debug)]
pub struct Chain {
    input: Arc<dyn ExecutionPlan>,
    streams: usize,
    properties: Arc<PlanProperties>,
}

impl Chain {
    fn new(input: Arc<dyn ExecutionPlan>, streams: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(streams),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, streams, properties: Arc::new(properties) }
    }
}

impl DisplayAs for Chain {
    fn fmt_as(&self, _form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain: streams={}", self.streams)
    }
}

impl ExecutionPlan for Chain {
    fn name(&self) -> &str {
        "Chain"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), self.streams)))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), self.streams)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (input, count) = (Arc::clone(&self.input), partitions(&self.input));
        // A partition starts when the stream reaches it.
        let started = stream::iter((partition..count).step_by(self.streams))
            .map(move |number| input.execute(number, Arc::clone(&context)))
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), started)))
    }
}
